package ibverbs

import (
	"fmt"

	"github.com/purerdma/purerdma/ibverbs/driver"
)

// MRChange is what Reregister changes. What is not set stays as it is; to set nothing
// is an error. Source: ibv_rereg_mr and its flags.
type MRChange struct {
	// Memory takes the place of what was registered, addressed from its own address
	// on (IBV_REREG_MR_CHANGE_TRANSLATION).
	Memory Memory
	// PD is another one of the same device (IBV_REREG_MR_CHANGE_PD).
	PD *PD
	// Access takes the place of the rights, if SetAccess says so: to have none is
	// something, too (IBV_REREG_MR_CHANGE_ACCESS).
	Access    Access
	SetAccess bool
}

// Reregister changes the memory, the PD or the rights of a registration, for less
// than a new one costs where the device can. The keys may be others afterwards, and
// Addr, Len, LKey, RKey are those of the new memory. No request may use the MR
// meanwhile, and no other goroutine the MR. If it fails the MR is as it was, or can
// only be closed, which the device decides. Devices that cannot lack FeatureReregMR:
// close the MR and register anew.
func (m *MR) Reregister(c MRChange) error {
	const op = "re-register MR"
	v := m.dev
	return v.use(op, m.node.name, func() error {
		dc := driver.MRChange{SetAccess: c.SetAccess, Access: c.Access, SetMemory: c.Memory != nil}
		switch a := c.Access; {
		case c.Memory == nil && c.PD == nil && !c.SetAccess:
			return errNoChange
		case c.PD != nil && c.PD.dev != v:
			return errOtherPD
		case a != 0 && !c.SetAccess:
			return errSetAccess
		case a&(RemoteWrite|RemoteAtomic) != 0 && a&LocalWrite == 0:
			return errNeedsLocalWrite
		}
		addr, n := m.addr, m.n
		if c.Memory != nil {
			dc.Span = c.Memory.Span()
			if dc.Span.Len() == 0 {
				return errNoMemory
			}
			addr, n = dc.Span.Addr(), uint64(dc.Span.Len())
			dc.IOVA = addr
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
		settle := func(bool) {}
		if c.PD != nil {
			var err error
			if settle, err = m.node.move(c.PD.n); err != nil {
				return err
			}
			dc.PD = c.PD.d
		}
		d, err := r.Rereg(dc)
		settle(err == nil)
		if err != nil {
			return explainAccess(err, c.Access)
		}
		m.d, m.addr, m.n = d, addr, n
		m.lkey, m.rkey = d.Keys()
		m.node.rename(fmt.Sprintf("MR %#x of %d bytes", m.lkey, m.n))
		return nil
	})
}
