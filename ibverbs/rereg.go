package ibverbs

import (
	"fmt"

	"github.com/purerdma/purerdma/ibverbs/driver"
)

// Reregister changes the memory and the rights of a registration, for less than a
// new one costs where the device can. The keys may be others afterwards, and Addr,
// Len, LKey, RKey are those of the new memory, addressed from its own address on.
// No request may use the MR meanwhile, and no other goroutine the MR. If it fails the
// MR is as it was, or can only be closed, which the device decides. Devices that
// cannot lack FeatureReregMR: close the MR and register anew.
func (m *MR) Reregister(mem Memory, a Access) error {
	const op = "re-register MR"
	v := m.dev
	return v.use(op, m.node.name, func() error {
		if mem == nil {
			return errNoMemory
		}
		if a&(RemoteWrite|RemoteAtomic) != 0 && a&LocalWrite == 0 {
			return errNeedsLocalWrite
		}
		m.node.closeMu.Lock()
		defer m.node.closeMu.Unlock()
		if v.tree.find(m.node.id) == nil {
			return driver.ErrClosed
		}
		r, ok := m.d.(driver.Reregisterer)
		if !ok {
			return &NotSupportedError{Feature: FeatureReregMR, By: driver.LacksDriver}
		}
		s := mem.Span()
		d, err := r.Rereg(s, s.Addr(), a)
		if err != nil {
			return err
		}
		m.d, m.addr, m.n = d, s.Addr(), uint64(s.Len())
		m.lkey, m.rkey = d.Keys()
		m.node.rename(fmt.Sprintf("MR %#x of %d bytes", m.lkey, m.n))
		return nil
	})
}
