package softroce

import (
	"encoding/binary"
	"fmt"
	"sync/atomic"
	"syscall"

	"github.com/purerdma/purerdma/ibverbs/driver"
)

// ah is an address handle. Its route does not change: a request that was queued
// with it is safe whatever becomes of it.
type ah struct {
	pd     *pd
	route  route
	closed atomic.Bool
}

var errAH = fmt.Errorf("SendWR.UD.AH is nil, closed, or of another device or PD: %w", syscall.EINVAL)

// CreateAH asks nobody: the system finds the way when packets are sent.
func (p *pd) CreateAH(a driver.AHAttr) (driver.AH, error) {
	if err := p.e.checkAddress(&a); err != nil {
		return nil, err
	}
	if p.e.ahs.Add(1) > maxAH {
		p.e.ahs.Add(-1)
		return nil, syscall.ENOMEM
	}
	p.users.Add(1)
	// Datagrams of one flow label to one peer leave from one port and stay in order.
	hash := a.FlowLabel ^ binary.BigEndian.Uint32(a.DGID[12:])
	return &ah{pd: p, route: p.e.newRoute(a.DGID.Addr(), a.TrafficClass, hash)}, nil
}

func (a *ah) Close() error {
	a.closed.Store(true)
	a.pd.e.ahs.Add(-1)
	a.pd.users.Add(-1)
	return nil
}

// mayUse says whether requests of q may name this address handle.
func (q *qp) mayUse(h driver.AH) bool {
	a, ok := h.(*ah)
	return ok && a != nil && a.pd == q.pd && !a.closed.Load()
}

// checkAddress refuses what the device cannot reach, and names the field.
func (e *engine) checkAddress(a *driver.AHAttr) error {
	to := a.DGID.Addr()
	for _, f := range [...]struct {
		bad   bool
		field string
		value any
		why   string
	}{
		{a.Port != 1, "Port", a.Port, "the device has port 1 alone"},
		{!a.IsGlobal, "IsGlobal", a.IsGlobal, "RoCE has addresses by GID alone"},
		{a.SGIDIndex != 0, "SGIDIndex", a.SGIDIndex, "the GID table has index 0 alone"},
		{a.SL > 15, "SL", a.SL, "it has 4 bits"},
		{a.FlowLabel > 0xfffff, "FlowLabel", a.FlowLabel, "it has 20 bits"},
		{a.DGID.IsZero() || to.IsUnspecified(), "DGID", a.DGID, "it is nobody's address"},
		{to.IsMulticast(), "DGID", a.DGID, "the device sends to no multicast group"},
		{to.Is4() != e.addr.Is4(), "DGID", a.DGID, "the GID of SGIDIndex is " + e.addr.String() + ", of the other IP version"},
	} {
		if f.bad {
			return &driver.Error{Err: fmt.Errorf("AHAttr.%s is %v: %w", f.field, f.value, syscall.EINVAL), Hint: f.why}
		}
	}
	return nil
}
