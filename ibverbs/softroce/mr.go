package softroce

import (
	"errors"
	"os"
	"sync/atomic"
	"syscall"

	"github.com/purerdma/purerdma/ibverbs/driver"
	"github.com/purerdma/purerdma/internal/offheap"
)

// mr maps the addresses from iova on to the bytes of the span. Its key is local
// and remote key at once; it is random, so that a peer cannot guess those of
// others.
type mr struct {
	pd     *pd
	span   driver.Span
	mem    []byte // of the span, for as long as it is registered
	iova   uint64
	access driver.Access
	key    uint32

	users atomic.Int64 // copies in progress, plus closing, plus windowHold for each window that is bound
	idle  chan struct{}
}

const (
	closing    = 1 << 32 // added to users by Close: no copy begins any more
	windowHold = 1 << 40
)

const (
	knownAccess = driver.LocalWrite | driver.RemoteWrite | driver.RemoteRead | driver.RemoteAtomic | driver.MWBind |
		driver.HugeTLB | driver.RelaxedOrdering
	remoteChange = driver.RemoteWrite | driver.RemoteAtomic
)

func (p *pd) RegMR(s driver.Span, iova uint64, a driver.Access) (driver.MR, error) {
	if a&driver.OnDemand != 0 {
		return nil, lacks(driver.FeatureOnDemand)
	}
	n := uint64(s.Len())
	inPage := uint64(os.Getpagesize() - 1)
	switch {
	case n == 0, n > maxMRSize, iova+n < iova,
		s.Kind() == offheap.Ring,
		(iova^s.Addr())&inPage != 0,
		a&^knownAccess != 0,
		a&remoteChange != 0 && a&driver.LocalWrite == 0:
		return nil, syscall.EINVAL
	case p.e.mrs.len() >= maxMR:
		return nil, syscall.ENOMEM
	}
	if err := s.Retain(); err != nil {
		return nil, err
	}
	m := &mr{pd: p, span: s, mem: s.Bytes(), iova: iova, access: a, idle: make(chan struct{})}
	key, err := p.e.mrs.add(m, p.e.random, ^uint32(0), func(k uint32) bool { m.key = k; return k&windowBit == 0 })
	if err != nil {
		_ = s.Release()
		return nil, err
	}
	m.key = key
	p.users.Add(1)
	return m, nil
}

// Rereg makes another registration, with another key, and ends this one, which waits
// for the copies in progress.
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

func (m *mr) Keys() (lkey, rkey uint32) { return m.key, m.key }

// Close waits for the copies in progress. They never wait for anything
// themselves. While a window is bound to it, an MR stays (IBTA volume 1,
// 10.6.7.2.6).
func (m *mr) Close() error {
	for {
		n := m.users.Load()
		if n >= windowHold {
			return driver.ErrBusy
		}
		if m.users.CompareAndSwap(n, n+closing) {
			m.pd.e.mrs.remove(m.key)
			if n > 0 {
				<-m.idle
			}
			break
		}
	}
	m.pd.users.Add(-1)
	return m.span.Release()
}

// begin lets a copy use the memory until end. It fails once Close has begun.
func (m *mr) begin() bool { return m.use(1) }

// hold keeps the registration for a window until release.
func (m *mr) hold() bool { return m.use(windowHold) }

func (m *mr) release() { m.users.Add(-windowHold) }

func (m *mr) use(by int64) bool {
	for {
		n := m.users.Load()
		if n&closing != 0 {
			return false
		}
		if m.users.CompareAndSwap(n, n+by) {
			return true
		}
	}
}

func (m *mr) end() {
	if m.users.Add(-1) == closing {
		close(m.idle)
	}
}

// covers says whether p may do with n bytes from addr on what need says.
func (m *mr) covers(p *pd, addr, n uint64, need driver.Access) bool {
	if m == nil || m.pd != p || m.access&need != need || addr < m.iova {
		return false
	}
	off, size := addr-m.iova, uint64(len(m.mem))
	return off <= size && n <= size-off
}

// bytes is n bytes from addr on, which covers has found to be inside.
func (m *mr) bytes(addr, n uint64) []byte {
	off := addr - m.iova
	return m.mem[off : off+n]
}

// memory is n bytes from addr on with the key, for a copy; nil if p may not do
// that. The caller calls end on the registration.
func (e *engine) memory(p *pd, key uint32, addr, n uint64, need driver.Access) (*mr, []byte) {
	m := e.mrs.get(key)
	if !m.covers(p, addr, n, need) || !m.begin() {
		return nil, nil
	}
	return m, m.bytes(addr, n)
}
