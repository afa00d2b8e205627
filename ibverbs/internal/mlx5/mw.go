package mlx5

import (
	"sync"
	"sync/atomic"

	"github.com/purerdma/purerdma/ibverbs/driver"
	"github.com/purerdma/purerdma/ibverbs/internal/uverbs"
	"github.com/purerdma/purerdma/internal/mlx5prm"
)

// MW is a memory window of type 2. It implements driver.MW.
//
// Neither the device nor the kernel knows which windows are bound to an MR, and a window
// stays bound when the QP goes that had bound it. So the window is followed here,
// request by request. What became of requests of a QP that failed is not known: such a
// window is made anew when that QP goes.
type MW struct {
	pd  *PD
	key atomic.Uint32 // as the kernel made it

	mu    sync.Mutex
	h     uverbs.MWHandle
	mr    *MR    // that it is bound to once all that is posted has run, nil for none
	bound uint32 // the key that it has then
	qp    *QP    // that had the last request on it, nil for none
	lost  error  // why there is no window any more
}

// windows is the windows of a context, by the part of their keys that stays.
type windows struct {
	sync.RWMutex
	byIndex map[uint32]*MW
}

func (ws *windows) of(key uint32) *MW {
	ws.RLock()
	defer ws.RUnlock()
	return ws.byIndex[key>>8]
}

// AllocMW implements driver.PD.
func (p *PD) AllocMW() (driver.MW, error) {
	w := &MW{pd: p}
	if err := w.make(); err != nil {
		return nil, err
	}
	return w, nil
}

// make has the kernel make the window.
func (w *MW) make() error {
	made, err := w.pd.dev.Dev.AllocMW(w.pd.h, uverbs.UHW{})
	if err != nil {
		return err
	}
	w.h, w.qp = made.Handle, nil
	w.key.Store(made.RKey)
	ws := &w.pd.dev.windows
	ws.Lock()
	defer ws.Unlock()
	ws.byIndex[made.RKey>>8] = w
	return nil
}

// free has the kernel free it, bound or not.
func (w *MW) free() error {
	err := w.pd.dev.Dev.DeallocMW(w.h)
	if destroyed(err) {
		w.unbind()
		ws := &w.pd.dev.windows
		ws.Lock()
		delete(ws.byIndex, w.RKey()>>8)
		ws.Unlock()
	}
	return err
}

func (w *MW) unbind() {
	if w.mr != nil {
		w.mr.windows.Add(-1)
		w.mr = nil
	}
}

// RKey implements driver.MW.
func (w *MW) RKey() uint32 { return w.key.Load() }

// Close implements driver.MW.
func (w *MW) Close() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.lost != nil {
		return nil
	}
	err := w.free()
	if destroyed(err) {
		w.lost = errClosedMW
	}
	return err
}

// mayBind is the rights that a window can give.
const mayBind = driver.LocalWrite | driver.RemoteWrite | driver.RemoteRead | driver.RemoteAtomic

// maxBind is the most bytes of a window: its length is that of one entry of a list.
const maxBind = 1 << 31

// bind fills the entry of a bind and gives the key of the window. The device looks at
// none of what covers refuses: of such a bind the entry names no window, and ends in
// MWBindErr.
func (q *QP) bind(off uint32, b *driver.BindMW) (key uint32, err error) {
	if b == nil {
		return 0, errNoBind
	}
	w, ok1 := b.MW.(*MW)
	m, ok2 := b.MR.(*MR)
	switch {
	case !ok1 || !ok2 || w.pd.dev != q.dev || m.pd.dev != q.dev:
		return 0, errOtherMW
	case b.Access&^mayBind != 0:
		return 0, errMWAccess
	case b.Length > maxBind:
		return 0, errMWTooLong
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	key = w.RKey()
	switch {
	case w.lost != nil:
		return 0, w.lost
	case w.qp != nil && w.qp != q && driver.QPState(w.qp.state.Load()) == driver.StateErr:
		return 0, errMWOfFailedQP
	case b.RKey>>8 != key>>8:
		return 0, errMWKey
	}
	if w.pd != q.pd || m.pd != q.pd || !m.covers(b) {
		key = 0
	} else if driver.QPState(q.state.Load()) != driver.StateErr && w.mr == nil {
		m.windows.Add(1)
		w.mr, w.bound, w.qp = m, b.RKey, q
		q.binds.Store(true)
	}
	q.sq.putBind(off, b, m.mr.LKey)
	return key, nil
}

// covers says whether a window may be bound so (IBTA 10.6.7.2.1).
func (m *MR) covers(b *driver.BindMW) bool {
	from := b.Addr - m.iova
	return m.access&driver.MWBind != 0 && b.Length > 0 && b.Addr >= m.iova && from <= m.length && b.Length <= m.length-from &&
		(m.access&driver.LocalWrite != 0 || b.Access&(driver.RemoteWrite|driver.RemoteAtomic) == 0)
}

// Parts of a UMR entry behind its head.
const (
	umrCtrlSize = 48
	mkeySize    = 64
	klmsSize    = 64 // a list is padded to as much

	invalidateSize = umrCtrlSize + mkeySize
	bindSize       = invalidateSize + klmsSize
)

// putBind writes a UMR entry that makes the window a list of one piece of memory, if it
// is free (type 2).
func (q *sendQueue) putBind(off uint32, b *driver.BindMW, lkey uint32) {
	u := mlx5prm.UMRCtrl{Flags: mlx5prm.UMRTranslationOffset | mlx5prm.UMRInline | mlx5prm.UMRCheckFree}
	u.KLMOctowords.Set(klmsSize / mlx5prm.DSUnit)
	u.MkeyMask.Set(mlx5prm.MkeyMaskFree | mlx5prm.MkeyMaskMkey | mlx5prm.MkeyMaskQPN | mlx5prm.MkeyMaskLen | mlx5prm.MkeyMaskStartAddr |
		mlx5prm.MkeyMaskLocalWrite | mlx5prm.MkeyMaskRemoteRead | mlx5prm.MkeyMaskRemoteWrite | mlx5prm.MkeyMaskAtomic)
	var k mlx5prm.MkeyContext
	for _, r := range [...]struct {
		right driver.Access
		bit   uint8
	}{
		{driver.LocalWrite, mlx5prm.MkeyAccessLocalWrite}, {driver.RemoteWrite, mlx5prm.MkeyAccessRemoteWrite},
		{driver.RemoteRead, mlx5prm.MkeyAccessRemoteRead}, {driver.RemoteAtomic, mlx5prm.MkeyAccessAtomic},
	} {
		if b.Access&r.right != 0 {
			k.AccessFlags |= r.bit
		}
	}
	k.QPNMkey.Set(q.qpn<<8 | b.RKey&0xff)
	k.StartAddr.Set(b.Addr)
	k.Len.Set(b.Length)
	q.putUMR(off, &u, &k)
	var l mlx5prm.KLM
	l.ByteCount.Set(uint32(b.Length))
	l.Mkey.Set(lkey)
	l.Address.Set(b.Addr)
	at := off + invalidateSize
	*q.klm(at) = l
	for rest := uint32(mlx5prm.DSUnit); rest < klmsSize; rest += mlx5prm.DSUnit {
		*q.klm(at + rest) = mlx5prm.KLM{}
	}
}

// putInvalidate writes a UMR entry that frees a window, if this QP has bound it.
func (q *sendQueue) putInvalidate(off uint32) {
	u := mlx5prm.UMRCtrl{Flags: mlx5prm.UMRTranslationOffset | mlx5prm.UMRInline | mlx5prm.UMRCheckQPN}
	u.MkeyMask.Set(mlx5prm.MkeyMaskFree | mlx5prm.MkeyMaskMkey | mlx5prm.MkeyMaskQPN)
	k := mlx5prm.MkeyContext{Free: mlx5prm.MkeyFree}
	k.QPNMkey.Set(noQP)
	q.putUMR(off, &u, &k)
}

// noQP in a key's context binds it to no QP.
const noQP = 0xffffff00

// putUMR writes both parts. The second may begin at the start of the ring, and neither
// goes across its end: blocks are of 64 bytes.
func (q *sendQueue) putUMR(off uint32, u *mlx5prm.UMRCtrl, k *mlx5prm.MkeyContext) {
	*q.umrCtrl(off) = *u
	*q.mkey(off + umrCtrlSize) = *k
}

// invalidate notes a request of the QP, which is not in ERR, that frees the window of
// key.
func (q *QP) invalidate(key uint32) {
	w := q.dev.windows.of(key)
	if w == nil || driver.QPState(q.state.Load()) == driver.StateErr {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.qp == q && w.bound == key {
		w.unbind()
	}
}

// invalidated notes that the peer took a window back.
func (c *Context) invalidated(key uint32) {
	if w := c.windows.of(key); w != nil {
		w.mu.Lock()
		if w.bound == key {
			w.unbind()
		}
		w.mu.Unlock()
	}
}

// freeWindows makes the windows anew on which the QP had requests. It comes when the QP
// is destroyed or reset.
func (q *QP) freeWindows() {
	if !q.binds.Swap(false) {
		return
	}
	q.dev.windows.RLock()
	var ws []*MW
	for _, w := range q.dev.windows.byIndex {
		ws = append(ws, w)
	}
	q.dev.windows.RUnlock()
	for _, w := range ws {
		w.mu.Lock()
		if w.qp == q && w.lost == nil {
			err := w.free()
			if err == nil {
				err = w.make()
			}
			if err != nil {
				w.lost = hint(err, "the window went with the queue pair that had bound it and could not be made anew: close it")
			}
		}
		w.mu.Unlock()
	}
}
