package nettransport

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"syscall"

	"github.com/purerdma/purerdma/gdr"
	"github.com/purerdma/purerdma/gpu"
	"github.com/purerdma/purerdma/ibverbs"
	"github.com/purerdma/purerdma/mr"
)

// Buffer is N bytes of an MR from byte Off on, and the tag by which the two ends match messages.
type Buffer struct {
	MR     *MR
	Off, N int
	Tag    int32
}

// MR is memory registered on each device of a connection. It belongs to the connection's goroutine.
type MR struct {
	c     *Comm
	addr  uint64
	n     int
	lkeys [maxDevs]uint32
	rkeys [maxDevs]uint32
	mrs   []*mr.Region  // one for each rail, from its cache
	bufs  []*ibverbs.MR // the same where the memory came by descriptor
	gpus  []*gdr.Memory // the same of the Transport's GPU
	users int           // requests in flight
	freed bool
}

// userAccess is what NCCL registers buffers with. Order among writes does not matter there: completions tell when data is in.
const userAccess = ringAccess | ibverbs.RelaxedOrdering

// ringAccess is for the rings, in which order matters.
const ringAccess = ibverbs.LocalWrite | ibverbs.RemoteWrite | ibverbs.RemoteRead

// RegMR registers m on each device of the connection. Memory that other connections of the Transport have registered is found
// in a cache and counted. It takes time in proportion to the size. The caller closes the MR, or the connection does.
func (c *Comm) RegMR(m ibverbs.Memory) (*MR, error) {
	if c.err != nil {
		return nil, c.err
	}
	if m == nil || m.Span().Len() == 0 {
		return nil, &ibverbs.Error{Op: "register memory", Device: c.nic.name, Err: fmt.Errorf("memory of no bytes: %w", syscall.EINVAL)}
	}
	s := m.Span()
	r := &MR{c: c, addr: s.Addr(), n: s.Len()}
	for i := range c.rails {
		cache := c.rails[i].cache
		got, err := relaxed(func(a ibverbs.Access) (*mr.Region, error) { return cache.Get(m, a) })
		if err != nil {
			return nil, errors.Join(err, r.put())
		}
		r.mrs = append(r.mrs, got)
		r.lkeys[i], r.rkeys[i] = got.LKey(), got.RKey()
	}
	return r.ready()
}

// RegMRDMABuf registers the b.Length bytes of a dma-buf from b.Offset on with each device of the connection: GPU memory, whose
// address is b.IOVA, for one. The descriptor stays the caller's, who may close it at once. Nothing is cached: a descriptor does not tell
// whether it is the same memory. A device that cannot is ibverbs.ErrNotSupported, EOPNOTSUPP or EPROTONOSUPPORT: the data must
// then go through host memory. The caller closes the MR, or the connection does.
func (c *Comm) RegMRDMABuf(b ibverbs.DMABuf) (*MR, error) {
	if c.err != nil {
		return nil, c.err
	}
	if b.Length == 0 || b.Length > math.MaxInt {
		return nil, &ibverbs.Error{Op: "register memory", Device: c.nic.name, Err: fmt.Errorf("a dma-buf of %d bytes: %w", b.Length, syscall.EINVAL)}
	}
	r := &MR{c: c, addr: b.IOVA, n: int(b.Length)}
	for i := range c.rails {
		pd := c.rails[i].pd
		got, err := relaxed(func(a ibverbs.Access) (*ibverbs.MR, error) { return pd.RegDMABuf(b, a) })
		if err != nil {
			return nil, errors.Join(err, r.put())
		}
		r.bufs = append(r.bufs, got)
		r.lkeys[i], r.rkeys[i] = got.LKey(), got.RKey()
	}
	return r.ready()
}

// RegMRGPU registers the n bytes at p of the Transport's GPU with each device of the connection, by DMA-BUF or by peer memory as
// package gdr decides. The error wraps gdr.ErrStaged where a device does not reach the GPU's memory. The range is of one allocation, or
// of several that the GPU's driver gives one descriptor for. The memory stays the caller's, who frees it after closing the MR, or the
// connection.
func (c *Comm) RegMRGPU(p gpu.Ptr, n int) (*MR, error) {
	if c.err != nil {
		return nil, c.err
	}
	bad := func(err error) error { return &ibverbs.Error{Op: "register GPU memory", Device: c.nic.name, Err: err} }
	if c.t.cfg.GPU == nil {
		return nil, bad(fmt.Errorf("Config.GPU is nil: %w", syscall.EINVAL))
	}
	r := &MR{c: c, addr: uint64(p), n: n}
	for i := range c.rails {
		reg, err := c.rails[i].port.dev.registrar()
		if err != nil {
			return nil, errors.Join(bad(err), r.put())
		}
		m, err := reg.Register(p, n, userAccess)
		if err != nil {
			return nil, errors.Join(bad(err), r.put())
		}
		r.gpus = append(r.gpus, m)
		pieces := m.Pieces()
		if len(pieces) != 1 {
			return nil, errors.Join(bad(fmt.Errorf("%d bytes at %#x are of %d allocations, which a message cannot cross: %w", n, uint64(p),
				len(pieces), syscall.EINVAL)), r.put())
		}
		r.lkeys[i], r.rkeys[i] = pieces[0].LKey(), pieces[0].RKey()
	}
	return r.ready()
}

// ready looks at the keys and gives the MR to its connection.
func (m *MR) ready() (*MR, error) {
	if slices.Contains(m.rkeys[:len(m.c.rails)], 0) {
		return nil, errors.Join(&ibverbs.Error{Op: "register memory", Device: m.c.nic.name,
			Err: errors.New("the device gave the remote key 0, which a peer takes for none")}, m.put())
	}
	m.c.mrs[m] = struct{}{}
	return m, nil
}

// relaxed asks for relaxed ordering, and does without where the device or the kernel has none.
func relaxed[T any](register func(ibverbs.Access) (T, error)) (T, error) {
	got, err := register(userAccess)
	if errors.Is(err, syscall.EINVAL) || errors.Is(err, syscall.EOPNOTSUPP) || errors.Is(err, ibverbs.ErrNotSupported) {
		return register(ringAccess)
	}
	return got, err
}

// Buffer is the n bytes from off on, as a message or a place for one with that tag. What is outside the memory, Isend and Irecv
// refuse.
func (m *MR) Buffer(off, n int, tag int32) Buffer { return Buffer{MR: m, Off: off, N: n, Tag: tag} }

// Len is the size in bytes.
func (m *MR) Len() int { return m.n }

// Close ends the registration when no other connection uses it. It is ErrBusy while a request in flight uses the memory. A
// second Close is nil.
func (m *MR) Close() error {
	switch {
	case m.freed:
		return nil
	case m.users > 0 && m.c.err == nil:
		return &ibverbs.Error{Op: "close MR", Device: m.c.nic.name, Peer: m.c.peerName(), Err: fmt.Errorf("%d requests in flight use it: %w", m.users, ErrBusy)}
	}
	delete(m.c.mrs, m)
	return m.put()
}

func (m *MR) put() error {
	m.freed = true
	var errs []error
	m.mrs = slices.DeleteFunc(m.mrs, func(r *mr.Region) bool {
		err := r.Close()
		errs = append(errs, err)
		return err == nil
	})
	for _, r := range m.bufs {
		errs = append(errs, r.Close()) // a second Close is nil
	}
	for _, r := range m.gpus {
		errs = append(errs, r.Close())
	}
	return errors.Join(errs...)
}

// check refuses a buffer that c cannot use.
func (b *Buffer) check(c *Comm, op string) error {
	switch m := b.MR; {
	case m == nil:
		return c.argError(op, fmt.Errorf("a buffer has no MR: %w", syscall.EINVAL), "register the memory with RegMR, also for empty messages")
	case m.freed:
		return c.argError(op, fmt.Errorf("a buffer's MR is closed: %w", ErrClosed), "")
	case m.c != c:
		return c.argError(op, ErrForeignMR, "register the memory with this connection too; it is found in the cache")
	case b.N > MaxMessage:
		return c.argError(op, fmt.Errorf("a buffer of %d bytes: %w", b.N, ErrMessageTooLong), "send several messages")
	case b.Off < 0 || b.N < 0 || b.Off > m.n || b.N > m.n-b.Off:
		return c.argError(op, fmt.Errorf("bytes %d to %d+%d are outside an MR of %d bytes: %w", b.Off, b.Off, b.N, m.n, syscall.EINVAL), "")
	}
	return nil
}

func (c *Comm) argError(op string, err error, hint string) error {
	return &ibverbs.Error{Op: op, Device: c.nic.name, Peer: c.peerName(), Err: err, Hint: hint}
}
