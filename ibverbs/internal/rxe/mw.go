package rxe

import (
	"sync"
	"sync/atomic"
	"syscall"

	"github.com/purerdma/purerdma/ibverbs/driver"
	"github.com/purerdma/purerdma/ibverbs/internal/uapi"
	"github.com/purerdma/purerdma/ibverbs/internal/uverbs"
)

// MW is a memory window of type 2. It implements driver.MW.
//
// A bind has to name the key that the window has when the kernel comes to it, and
// the kernel crashes when it is told to invalidate a window that is not bound. So
// the window is followed here, request by request. What became of requests of a
// QP that failed is not known: such a window is made anew when that QP goes.
type MW struct {
	pd *PD
	// state is the key and whether it is bound, once all that is posted has run.
	state atomic.Uint64

	mu   sync.Mutex
	h    uverbs.MWHandle
	qp   *QP   // that had the last request on it, nil for none
	lost error // why there is no window any more
}

// bound is a bit of MW.state, above the key.
const bound = 1 << 32

// windows is the windows of a PD, by the part of their keys that stays.
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
		if err == syscall.EINVAL {
			err = hint(err, "the device has %d windows in all", w.pd.dev.attr.MaxMW)
		}
		return err
	}
	w.h, w.qp = made.Handle, nil
	w.state.Store(uint64(made.RKey))
	ws := &w.pd.windows
	ws.Lock()
	defer ws.Unlock()
	if ws.byIndex == nil {
		ws.byIndex = map[uint32]*MW{}
	}
	ws.byIndex[made.RKey>>8] = w
	return nil
}

// free has the kernel free it, bound or not.
func (w *MW) free() error {
	err := w.pd.dev.Dev.DeallocMW(w.h)
	if destroyed(err) {
		ws := &w.pd.windows
		ws.Lock()
		delete(ws.byIndex, w.RKey()>>8)
		ws.Unlock()
	}
	return err
}

// RKey implements driver.MW.
func (w *MW) RKey() uint32 { return uint32(w.state.Load()) }

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

// bindMW fills the element of a bind. One across protection domains names no window,
// and ends as MWBindErr: the kernel does not look at the MR's.
func (q *QP) bindMW(e *uapi.RxeSendWQE, b *driver.BindMW) error {
	if b == nil {
		return errNoBind
	}
	w, ok1 := b.MW.(*MW)
	m, ok2 := b.MR.(*MR)
	if !ok1 || !ok2 || w.pd.dev != q.dev || m.pd.dev != q.dev {
		return errOtherMW
	}
	if w.pd != q.pd || m.pd != q.pd {
		return nil
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.lost != nil {
		return w.lost
	}
	if w.qp != nil && w.qp != q && driver.QPState(w.qp.state.Load()) == driver.StateErr {
		return errMWOfFailedQP
	}
	key := w.RKey()
	if b.RKey>>8 != key>>8 {
		return errMWKey
	}
	*bind(e) = uapi.RxeWRMW{Addr: b.Addr, Length: b.Length, MRLKey: m.mr.LKey, MWRKey: key, RKey: b.RKey, Access: uint32(b.Access)}
	if driver.QPState(q.state.Load()) != driver.StateErr {
		w.state.Store(uint64(b.RKey) | bound)
		w.qp = q
	}
	return nil
}

// localInv fills the element of an invalidation. One of a key that is of no window
// bound by this QP names no key, and ends as LocQPOpErr.
func (q *QP) localInv(e *uapi.RxeSendWQE, key uint32) {
	w := q.pd.windows.of(key)
	if w == nil || driver.QPState(q.state.Load()) == driver.StateErr {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.qp == q && w.state.CompareAndSwap(uint64(key)|bound, uint64(key)) {
		invalidate(e, key)
	}
}

// invalidated notes that the peer took windows back.
func (c *Context) invalidated(wcs []driver.WC) {
	for i := range wcs {
		if wcs[i].Flags&driver.WCWithInv == 0 {
			continue
		}
		c.mu.Lock()
		q := c.qps[wcs[i].QPN]
		c.mu.Unlock()
		if q == nil {
			continue
		}
		if w := q.pd.windows.of(wcs[i].Imm); w != nil {
			w.state.CompareAndSwap(uint64(wcs[i].Imm)|bound, uint64(wcs[i].Imm))
		}
	}
}

// freeWindows makes the windows anew on which the QP had requests. It comes
// before the QP is destroyed: the kernel waits 50 seconds for each window that is
// bound by one, and then goes on using what it has freed.
func (q *QP) freeWindows() {
	q.pd.windows.RLock()
	var ws []*MW
	for _, w := range q.pd.windows.byIndex {
		ws = append(ws, w)
	}
	q.pd.windows.RUnlock()
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
