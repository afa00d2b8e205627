package memdriver

import (
	"errors"
	"os"
	"syscall"

	"github.com/purerdma/purerdma/ibverbs/driver"
	"github.com/purerdma/purerdma/internal/offheap"
)

type pd struct {
	driver.BasePD
	ctx   *memContext
	users int
}

// mr maps the addresses from iova on to the bytes of the span.
type mr struct {
	pd         *pd
	span       driver.Span
	iova       uint64
	access     driver.Access
	lkey, rkey uint32
}

const (
	knownAccess = driver.LocalWrite | driver.RemoteWrite | driver.RemoteRead | driver.RemoteAtomic | driver.MWBind |
		driver.HugeTLB | driver.RelaxedOrdering
	remoteChange = driver.RemoteWrite | driver.RemoteAtomic
)

func (p *pd) RegMR(s driver.Span, iova uint64, a driver.Access) (driver.MR, error) {
	dev := p.ctx.dev
	dev.d.mu.Lock()
	defer dev.d.mu.Unlock()
	if err := dev.control(OpRegMR); err != nil {
		return nil, err
	}
	if a&driver.OnDemand != 0 {
		return nil, &driver.NotSupportedError{Feature: driver.FeatureOnDemand, By: driver.LacksDevice, Err: syscall.EOPNOTSUPP}
	}
	n := uint64(s.Len())
	inPage := uint64(os.Getpagesize() - 1)
	switch {
	case n == 0, n > dev.attr.MaxMRSize, iova+n < iova,
		s.Kind() == offheap.Ring,
		(iova^s.Addr())&inPage != 0,
		a&^knownAccess != 0,
		a&remoteChange != 0 && a&driver.LocalWrite == 0:
		return nil, syscall.EINVAL
	case len(dev.lkeys) >= dev.attr.MaxMR:
		return nil, syscall.ENOMEM
	}
	if err := s.Retain(); err != nil {
		return nil, err
	}
	return p.add(&mr{span: s, iova: iova, access: a}), nil
}

// RegDMABuf is DeviceConfig.DMABuf.
func (p *pd) RegDMABuf(b driver.DMABuf, a driver.Access) (driver.MR, error) {
	dev := p.ctx.dev
	if dev.dmaBuf == nil {
		return p.BasePD.RegDMABuf(b, a)
	}
	dev.d.mu.Lock()
	defer dev.d.mu.Unlock()
	if err := dev.control(OpRegMR); err != nil {
		return nil, err
	}
	if len(dev.lkeys) >= dev.attr.MaxMR {
		return nil, syscall.ENOMEM
	}
	if err := dev.dmaBuf(b); err != nil {
		return nil, err
	}
	return p.add(&mr{iova: b.IOVA, access: a}), nil
}

// add gives an MR its keys.
func (p *pd) add(m *mr) *mr {
	dev := p.ctx.dev
	m.pd, m.lkey, m.rkey = p, dev.lastKey+1, dev.lastKey+2
	dev.lastKey += 2
	dev.lkeys[m.lkey], dev.rkeys[m.rkey] = m, m
	p.users++
	return m
}

func (p *pd) Close() error {
	p.ctx.dev.d.mu.Lock()
	defer p.ctx.dev.d.mu.Unlock()
	if p.users > 0 {
		return driver.ErrBusy
	}
	if err := p.ctx.dev.faults.next(OpClose); err != nil {
		return err
	}
	p.ctx.dev.pds--
	p.ctx.users--
	return nil
}

// Rereg makes another registration, with other keys, and drops this one.
func (m *mr) Rereg(c driver.MRChange) (driver.MR, error) {
	p, s, iova, a := m.pd, m.span, m.iova, m.access
	if c.PD != nil {
		p, _ = c.PD.(*pd)
	}
	if c.SetMemory {
		s, iova = c.Span, c.IOVA
	}
	if c.SetAccess {
		a = c.Access
	}
	if !c.Changes() || p == nil || p.ctx != m.pd.ctx {
		return nil, syscall.EINVAL
	}
	r, err := p.RegMR(s, iova, a)
	if err != nil {
		return nil, err
	}
	if err := m.Close(); err != nil {
		return nil, errors.Join(err, r.Close())
	}
	return r, nil
}

func (m *mr) Keys() (lkey, rkey uint32) { return m.lkey, m.rkey }

// Close needs no wait: accesses hold the lock of the fabric.
func (m *mr) Close() error {
	dev := m.pd.ctx.dev
	dev.d.mu.Lock()
	defer dev.d.mu.Unlock()
	if err := dev.faults.next(OpClose); err != nil {
		return err
	}
	delete(dev.lkeys, m.lkey)
	delete(dev.rkeys, m.rkey)
	m.pd.users--
	if m.span.Len() == 0 {
		return nil // of a dma-buf
	}
	return m.span.Release()
}

// bytes is n bytes from addr on, or false if the MR is nil, belongs to another
// PD, lacks one of the rights or does not cover the range.
func (m *mr) bytes(p *pd, addr uint64, n uint32, need driver.Access) ([]byte, bool) {
	if m == nil || m.pd != p || m.access&need != need || addr < m.iova {
		return nil, false
	}
	off, size := addr-m.iova, uint64(m.span.Len())
	if off > size || uint64(n) > size-off {
		return nil, false
	}
	return m.span.Bytes()[off : off+uint64(n)], true
}
