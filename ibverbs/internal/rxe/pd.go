package rxe

import (
	"errors"
	"os"
	"syscall"

	"github.com/purerdma/purerdma/ibverbs/driver"
	"github.com/purerdma/purerdma/ibverbs/internal/uverbs"
	"github.com/purerdma/purerdma/internal/offheap"
)

// PD is a protection domain. It implements driver.PD.
type PD struct {
	driver.BasePD
	dev     *Context
	h       uverbs.PDHandle
	windows windows
}

// MR is a memory registration. It implements driver.MR.
type MR struct {
	pd  *PD
	mr  uverbs.MR
	mem driver.Span // empty for a dma-buf
}

// RegMR implements driver.PD.
func (p *PD) RegMR(s driver.Span, iova uint64, a driver.Access) (driver.MR, error) {
	if err := registrable(s, iova, a); err != nil {
		return nil, err
	}
	if err := s.Retain(); err != nil {
		return nil, err
	}
	mr, err := p.dev.Dev.RegMR(p.h, s.Addr(), uint64(s.Len()), iova, a, uverbs.UHW{})
	if err != nil {
		return nil, errors.Join(p.dev.explainMR(err, s.Len()), s.Release())
	}
	return &MR{pd: p, mr: mr, mem: s}, nil
}

// Rereg implements driver.Reregisterer. Soft-RoCE of Linux 6.1 does not have it.
func (m *MR) Rereg(c driver.MRChange) (driver.MR, error) {
	now := &MR{pd: m.pd, mem: m.mem}
	req := uverbs.Rereg{Access: c.Access, SetAccess: c.SetAccess}
	if c.PD != nil {
		p, ok := c.PD.(*PD)
		if !ok || p.dev != m.pd.dev {
			return nil, hint(syscall.EINVAL, "the PD is not of this device")
		}
		now.pd, req.PD, req.SetPD = p, p.h, true
	}
	if c.SetAccess {
		if err := grantable(c.Access); err != nil {
			return nil, err
		}
	}
	if c.SetMemory {
		if err := mappable(c.Span, c.IOVA); err != nil {
			return nil, err
		}
		if err := c.Span.Retain(); err != nil {
			return nil, err
		}
		now.mem = c.Span
		req.SetMemory, req.Addr, req.Length, req.IOVA = true, c.Span.Addr(), uint64(c.Span.Len()), c.IOVA
	}
	var err error
	if now.mr, err = m.pd.dev.Dev.ReregMR(m.mr.Handle, req); err != nil {
		if c.SetMemory {
			_ = c.Span.Release()
		}
		return nil, m.pd.dev.explainMR(err, int(req.Length))
	}
	if c.SetMemory {
		if err := m.mem.Release(); err != nil {
			return nil, err
		}
	}
	return now, nil
}

// registrable is what the kernel would refuse without a word, and what it takes
// though it must not.
func registrable(s driver.Span, iova uint64, a driver.Access) error {
	if err := mappable(s, iova); err != nil {
		return err
	}
	return grantable(a)
}

func mappable(s driver.Span, iova uint64) error {
	switch page := uint64(os.Getpagesize()); {
	case s.Kind() == offheap.Ring:
		return errRing
	case s.Len() == 0:
		return hint(syscall.EINVAL, "the memory is empty")
	case (iova^s.Addr())%page != 0:
		return hint(syscall.EINVAL, "IO virtual address %#x and memory at %#x differ in their offset within a page", iova, s.Addr())
	}
	return nil
}

func grantable(a driver.Access) error {
	switch {
	case a&driver.OnDemand != 0:
		return &driver.NotSupportedError{Feature: driver.FeatureOnDemand, By: driver.LacksDevice}
	case a&(driver.RemoteWrite|driver.RemoteAtomic) != 0 && a&driver.LocalWrite == 0:
		return hint(syscall.EINVAL, "remote rights to write need LocalWrite too")
	}
	return nil
}

// explainMR adds to an errno what mostly causes it.
func (c *Context) explainMR(err error, size int) error {
	switch err {
	case syscall.ENOMEM:
		if limit, pinned, ok := lockedMemory(c.proc); ok {
			return hint(err, "%d bytes do not fit beside the %d that are registered already: the process may lock %d; raise ulimit -l, LimitMEMLOCK= of the service or --ulimit memlock of the container", size, pinned, limit)
		}
	case syscall.EFAULT:
		return hint(err, "the memory is not mapped, or without the right to write that the access asks for")
	}
	return err
}

// RegDMABuf implements driver.PD. Soft-RoCE of Linux 6.1 does not have it.
func (p *PD) RegDMABuf(d driver.DMABuf, a driver.Access) (driver.MR, error) {
	mr, err := p.dev.Dev.RegDMABufMR(p.h, d, a)
	if err != nil {
		return nil, err
	}
	return &MR{pd: p, mr: mr}, nil
}

// Close implements driver.PD.
func (p *PD) Close() error { return p.dev.Dev.DeallocPD(p.h) }

// Keys implements driver.MR.
func (m *MR) Keys() (lkey, rkey uint32) { return m.mr.LKey, m.mr.RKey }

// Close implements driver.MR.
func (m *MR) Close() error {
	err := m.pd.dev.Dev.DeregMR(m.mr.Handle)
	if err == syscall.EINVAL {
		err = hint(driver.ErrBusy, "a memory window is bound to it: invalidate or close that one first")
	}
	if !destroyed(err) {
		return err
	}
	mem := m.mem
	m.mem = driver.Span{}
	return errors.Join(err, mem.Release())
}
