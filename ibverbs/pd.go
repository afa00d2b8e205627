package ibverbs

import (
	"fmt"
	"syscall"

	"github.com/purerdma/purerdma/ibverbs/driver"
)

// PD is a protection domain: QPs use the memory registered in their own PD
// only.
type PD struct {
	dev *device
	d   driver.PD
	n   *node
}

// Info is the device of the domain, as it was found.
func (p *PD) Info() DeviceInfo { return p.dev.info }

// Port asks the device of the domain for the state of a port, from 1.
func (p *PD) Port(port int) (PortAttr, error) { return p.dev.Port(port) }

// GIDs is the used slots of a port's table, as Context.GIDs gives them.
func (p *PD) GIDs(port int) ([]GIDEntry, error) { return p.dev.GIDs(port) }

// RegMR registers m with the rights a. The memory stays mapped until the MR is
// closed, even if its buffer is closed before. It takes time in proportion to
// the size, since the kernel pins the pages.
func (p *PD) RegMR(m Memory, a Access) (*MR, error) {
	s, err := p.span(m)
	if err != nil {
		return nil, err
	}
	return p.regMR(s, s.Addr(), a)
}

// RegMRIOVA registers m so that work requests, here and at the peer, address it
// from iova on. iova has the same offset within a page as the memory.
func (p *PD) RegMRIOVA(m Memory, iova uint64, a Access) (*MR, error) {
	s, err := p.span(m)
	if err != nil {
		return nil, err
	}
	return p.regMR(s, iova, a)
}

func (p *PD) span(m Memory) (driver.Span, error) {
	if m == nil {
		return driver.Span{}, &Error{Op: "register MR", Device: p.dev.info.Name, Object: p.n.name, Err: errNoMemory}
	}
	s := m.Span()
	if s.Len() == 0 {
		return s, &Error{Op: "register MR", Device: p.dev.info.Name, Object: p.n.name, Err: errNoMemory}
	}
	return s, nil
}

func (p *PD) regMR(s driver.Span, iova uint64, a Access) (*MR, error) {
	return p.newMR("register MR", iova, uint64(s.Len()), a, func() (driver.MR, error) {
		d, err := p.d.RegMR(s, iova, a)
		return d, explainMR(err, s, iova, a)
	})
}

// RegDMABuf registers a range of a dma-buf, GPU memory for example. The
// descriptor may be closed afterwards.
func (p *PD) RegDMABuf(b DMABuf, a Access) (*MR, error) {
	return p.newMR("register DMA-BUF MR", b.IOVA, b.Length, a, func() (driver.MR, error) {
		d, err := p.d.RegDMABuf(b, a)
		if err == syscall.EINVAL && b.Length == 0 {
			return d, because(err, "DMABuf.Length is 0")
		}
		return d, explainAccess(err, a)
	})
}

func (p *PD) newMR(op string, iova, length uint64, a Access, reg func() (driver.MR, error)) (*MR, error) {
	if remoteWrites := a & (RemoteWrite | RemoteAtomic); remoteWrites != 0 && a&LocalWrite == 0 {
		return nil, &Error{Op: op, Device: p.dev.info.Name, Object: p.n.name, Err: errNeedsLocalWrite, Hint: "add LocalWrite"}
	}
	m := &MR{dev: p.dev, addr: iova, n: length}
	err := p.dev.create(op, rankMR, "MR", []*node{p.n}, func(n *node) (string, func() error, error) {
		d, err := reg()
		if err != nil {
			return "", nil, err
		}
		m.d, m.node = d, n
		m.lkey, m.rkey = d.Keys()
		return fmt.Sprintf("MR %#x of %d bytes", m.lkey, length), func() error { return m.d.Close() }, nil
	}, m)
	if err != nil {
		return nil, err
	}
	return m, nil
}

func (p *PD) destroy() error { return p.d.Close() }

// Close is ErrBusy while an MR or QP of the domain is open.
func (p *PD) Close() error { return p.dev.closeNode("close PD", p.n) }

// MR is registered memory.
type MR struct {
	dev        *device
	d          driver.MR
	node       *node
	addr, n    uint64
	lkey, rkey uint32
}

// Addr is the IO virtual address of the first byte, Len the size in bytes.
func (m *MR) Addr() uint64 { return m.addr }

// Len is the size in bytes.
func (m *MR) Len() int { return int(m.n) }

// LKey is the key for our own work requests.
func (m *MR) LKey() uint32 { return m.lkey }

// RKey is the key for the peer's requests, in host byte order.
func (m *MR) RKey() uint32 { return m.rkey }

// Remote is what a peer needs to reach the memory from byte off on. off outside
// the MR panics, as a slice expression does.
func (m *MR) Remote(off int) Remote {
	if off < 0 || uint64(off) > m.n {
		outside(off, 0, m.n)
	}
	return Remote{Addr: m.addr + uint64(off), RKey: m.rkey}
}

// longest is the most that one message carries (IBTA 9.7.2): 2 GiB.
const longest = 1 << 31

// SGE is the n bytes from off on, at most 2 GiB. A range outside the MR panics,
// as a slice expression does: check offsets that come from a peer before.
func (m *MR) SGE(off, n int) SGE {
	if off < 0 || n < 0 || uint64(off)+uint64(n) > m.n {
		outside(off, n, m.n)
	}
	if n > longest {
		panic(fmt.Sprintf("ibverbs: an SGE of %d bytes is longer than a message, which has at most %d", n, longest))
	}
	return SGE{Addr: m.addr + uint64(off), Length: uint32(n), LKey: m.lkey}
}

func outside(off, n int, size uint64) {
	panic(fmt.Sprintf("ibverbs: bytes %d to %d+%d are outside an MR of %d bytes", off, off, n, size))
}

// Close ends the registration. It returns when no access by the device is in
// progress. Requests still queued that use it fail. While a window is bound to it,
// it is ErrBusy and changes nothing.
func (m *MR) Close() error { return m.dev.closeNode("close MR", m.node) }
