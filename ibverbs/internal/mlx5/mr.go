package mlx5

import (
	"errors"
	"os"
	"sync/atomic"
	"syscall"

	"github.com/purerdma/purerdma/ibverbs/driver"
	"github.com/purerdma/purerdma/ibverbs/internal/uverbs"
	"github.com/purerdma/purerdma/internal/offheap"
)

// MR is a memory registration. It implements driver.MR.
type MR struct {
	pd      *PD
	mr      uverbs.MR
	mem     driver.Span // empty for a dma-buf
	iova    uint64
	length  uint64
	access  driver.Access
	windows atomic.Int32 // that are bound to it
}

// RegMR implements driver.PD.
func (p *PD) RegMR(s driver.Span, iova uint64, a driver.Access) (driver.MR, error) {
	if err := mappable(s, iova); err != nil {
		return nil, err
	}
	if err := rights(a); err != nil {
		return nil, err
	}
	if err := s.Retain(); err != nil {
		return nil, err
	}
	mr, err := p.dev.Dev.RegMR(p.h, s.Addr(), uint64(s.Len()), iova, a, uverbs.UHW{})
	if err != nil {
		return nil, errors.Join(explainMR(err), s.Release())
	}
	return &MR{pd: p, mr: mr, mem: s, iova: iova, length: uint64(s.Len()), access: a}, nil
}

// Rereg implements driver.Reregisterer.
func (m *MR) Rereg(c driver.MRChange) (driver.MR, error) {
	if n := m.windows.Load(); n > 0 {
		return nil, boundTo(n)
	}
	now := &MR{pd: m.pd, mem: m.mem, iova: m.iova, length: m.length, access: m.access}
	req := uverbs.Rereg{Access: c.Access, SetAccess: c.SetAccess}
	if c.PD != nil {
		p, ok := c.PD.(*PD)
		if !ok || p.dev != m.pd.dev {
			return nil, hint(syscall.EINVAL, "the PD is not of this device")
		}
		now.pd, req.PD, req.SetPD = p, p.h, true
	}
	if c.SetAccess {
		if err := rights(c.Access); err != nil {
			return nil, err
		}
		now.access = c.Access
	}
	if c.SetMemory {
		if err := mappable(c.Span, c.IOVA); err != nil {
			return nil, err
		}
		if err := c.Span.Retain(); err != nil {
			return nil, err
		}
		now.mem, now.iova, now.length = c.Span, c.IOVA, uint64(c.Span.Len())
		req.SetMemory, req.Addr, req.Length, req.IOVA = true, c.Span.Addr(), now.length, c.IOVA
	}
	var err error
	if now.mr, err = m.pd.dev.Dev.ReregMR(m.mr.Handle, req); err != nil {
		if c.SetMemory {
			_ = c.Span.Release()
		}
		return nil, explainMR(err)
	}
	if c.SetMemory {
		if err := m.mem.Release(); err != nil {
			return nil, err
		}
	}
	return now, nil
}

func boundTo(windows int32) error {
	return hint(driver.ErrBusy, "%d memory windows are bound to it: invalidate or close them first", windows)
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

func rights(a driver.Access) error {
	switch {
	case a&driver.OnDemand != 0:
		return &driver.NotSupportedError{Feature: driver.FeatureOnDemand, By: driver.LacksDriver}
	case a&(driver.RemoteWrite|driver.RemoteAtomic) != 0 && a&driver.LocalWrite == 0:
		return hint(syscall.EINVAL, "remote rights to write need LocalWrite too")
	}
	return nil
}

func explainMR(err error) error {
	switch err {
	case syscall.ENOMEM:
		return hint(err, "the process may not lock so much memory: raise ulimit -l, LimitMEMLOCK= of the service or --ulimit memlock of the container")
	case syscall.EFAULT:
		return hint(err, "the memory is not mapped, or without the right to write that the access asks for")
	}
	return err
}

// RegDMABuf implements driver.PD.
func (p *PD) RegDMABuf(d driver.DMABuf, a driver.Access) (driver.MR, error) {
	if err := rights(a); err != nil {
		return nil, err
	}
	mr, err := p.dev.Dev.RegDMABufMR(p.h, d, a)
	if err != nil {
		return nil, err
	}
	return &MR{pd: p, mr: mr, iova: d.IOVA, length: d.Length, access: a}, nil
}

// Keys implements driver.MR.
func (m *MR) Keys() (lkey, rkey uint32) { return m.mr.LKey, m.mr.RKey }

// Close implements driver.MR.
func (m *MR) Close() error {
	if n := m.windows.Load(); n > 0 {
		return boundTo(n)
	}
	err := m.pd.dev.Dev.DeregMR(m.mr.Handle)
	if !destroyed(err) {
		return err
	}
	mem := m.mem
	m.mem = driver.Span{}
	return errors.Join(err, mem.Release())
}
