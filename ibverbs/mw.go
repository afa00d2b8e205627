package ibverbs

import (
	"sync/atomic"

	"github.com/purerdma/purerdma/ibverbs/driver"
)

// MW is a memory window of type 2 (IBTA 10.6.7): remote rights to a part of an
// MR, given and taken back by requests of a QP, without a call into the kernel.
// Only the peer of the QP that bound it reaches it, until OpLocalInv or the peer's
// OpSendWithInv frees it, or that QP is closed or reset: then it is bound to nothing
// again.
type MW struct {
	dev *device
	d   driver.MW
	n   *node
	key atomic.Uint32
}

// AllocMW makes a window that is bound to nothing.
func (p *PD) AllocMW() (*MW, error) {
	w := &MW{dev: p.dev}
	err := p.dev.create("allocate MW", rankMW, "MW", []*node{p.n}, func(n *node) (string, func() error, error) {
		d, err := p.d.AllocMW()
		if err != nil {
			return "", nil, err
		}
		w.d, w.n = d, n
		w.key.Store(d.RKey())
		return "", d.Close, nil
	}, w)
	if err != nil {
		return nil, err
	}
	return w, nil
}

// Bind is what to post as SendWR.Bind of an OpBindMW: n bytes of m from off on,
// with the rights a, which are remote ones and need not be those of the MR. The MR
// needs MWBind, and LocalWrite if they change memory. A window that is bound must be
// freed before the next bind, and a bind of no bytes frees none (IBTA o10-37.2.30
// and .40): both complete in MWBindErr and leave the QP in error.
//
// Each call takes the next key, so that a peer that still has the last one is
// refused; BindMW.Remote is for the peer, once the request has completed. What was
// made before the QP went that had bound the window may be refused: make it anew. A
// range outside the MR panics, as a slice expression does.
func (w *MW) Bind(m *MR, off, n int, a Access) BindMW {
	if off < 0 || n < 0 || uint64(off)+uint64(n) > m.n {
		outside(off, n, m.n)
	}
	for {
		old := w.key.Load()
		key := w.d.RKey()&^0xff | (old+1)&0xff
		if w.key.CompareAndSwap(old, key) {
			return BindMW{MW: w.d, MR: m.d, Addr: m.addr + uint64(off), Length: uint64(n), Access: a, RKey: key}
		}
	}
}

// RKey is the key of the last Bind, what OpLocalInv and a peer's OpSendWithInv
// take as Imm.
func (w *MW) RKey() uint32 { return w.key.Load() }

// Close frees the window, bound or not.
func (w *MW) Close() error { return w.dev.closeNode("close MW", w.n) }
