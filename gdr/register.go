package gdr

import (
	"errors"
	"fmt"
	"log/slog"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/purerdma/purerdma/gpu"
	"github.com/purerdma/purerdma/ibverbs"
)

// ErrStaged is wrapped by the error of a registration that cannot be: the data has
// to go through host memory.
var ErrStaged = errors.New("the device cannot reach the GPU's memory")

// Registrar registers memory of one GPU with one protection domain. All methods
// may be called from any goroutine.
type Registrar struct {
	gpu  gpu.Context
	pd   *ibverbs.PD
	log  *slog.Logger
	peer string // the kernel's module for peer memory, "" if there is none

	mu       sync.Mutex
	decision Decision
}

// NewRegistrar decides, as Decide does, and makes one that goes that way. It owns
// neither the context nor the domain; both outlive what it registers. A nil log is
// slog.Default.
func NewRegistrar(c Config, g gpu.Context, pd *ibverbs.PD, log *slog.Logger) (*Registrar, error) {
	d, err := Decide(c)
	if err != nil {
		return nil, err
	}
	if log == nil {
		log = slog.Default()
	}
	return &Registrar{gpu: g, pd: pd, log: log, peer: peerModule(c.sys()), decision: d}, nil
}

// Decision is the way that is gone now: a device that refuses one is not asked
// again.
func (r *Registrar) Decision() Decision {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.decision
}

// Memory is GPU memory that a device reaches: one registration, or several where
// the range has several allocations and the GPU's driver does not give one
// descriptor for all. Close it before the memory is freed.
type Memory struct {
	p      gpu.Ptr
	n      int
	access ibverbs.Access
	pieces []*ibverbs.MR
}

// Register makes the n bytes at p reachable for the device with the rights a. Any
// offset and length will do. A device that refuses DMA-BUF is asked for peer memory,
// if the kernel has it, and the reason is logged once. The error wraps ErrStaged
// when no way is left.
func (r *Registrar) Register(p gpu.Ptr, n int, a ibverbs.Access) (*Memory, error) {
	d := r.Decision()
	if n < 1 {
		return nil, r.fail(p, n, fmt.Errorf("no memory: %w", unix.EINVAL))
	}
	if d.Way == DMABuf {
		m, err := r.byDescriptor(p, n, a)
		if err == nil || !refused(err) {
			return m, err
		}
		d = r.refuse(DMABuf, err)
	}
	if d.Way == PeerMemory {
		m, err := r.byAddress(p, n, a)
		if err == nil || !refused(err) {
			return m, err
		}
		d = r.refuse(PeerMemory, err)
	}
	return nil, r.fail(p, n, fmt.Errorf("%w: %s", ErrStaged, d.Reason))
}

// refused reports whether an error says that a way does not exist, rather than
// that this memory or this moment is wrong for it.
func refused(err error) bool {
	return errors.Is(err, ibverbs.ErrNotSupported) || errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.EPROTONOSUPPORT) ||
		errors.Is(err, errors.ErrUnsupported)
}

// refuse leaves a way for the next one that there may be.
func (r *Registrar) refuse(way Way, err error) Decision {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.decision.Way != way {
		return r.decision // somebody else found out
	}
	r.decision.Way = Staged
	r.decision.Reason = fmt.Sprintf("%v was refused: %v", way, err)
	if way == DMABuf && r.peer != "" {
		r.decision.Way = PeerMemory
	}
	r.log.Warn("GPU memory cannot be registered that way", "gpu", r.gpu.Device().Name, "device", r.pd.Info().Name,
		"way", way.String(), "instead", r.decision.Way.String(), "err", err)
	return r.decision
}

// byDescriptor registers by DMA-BUF, piece by piece if the driver gives none for
// the whole.
func (r *Registrar) byDescriptor(p gpu.Ptr, n int, a ibverbs.Access) (*Memory, error) {
	m := &Memory{p: p, n: n, access: a}
	mr, err := r.descriptor(p, n, a)
	if err == nil {
		m.pieces = []*ibverbs.MR{mr}
		return m, nil
	}
	first, asked := r.gpu.Address(p)
	if asked != nil || !first.Device || uint64(first.Base)+uint64(first.Len) >= uint64(p)+uint64(n) {
		return nil, err // one allocation: there is nothing to divide
	}
	for at, left := p, n; left > 0; {
		info, err := r.gpu.Address(at)
		if err != nil || !info.Device {
			return nil, errors.Join(r.fail(at, left, fmt.Errorf("not memory of the GPU: %w", unix.EFAULT)), err, m.Close())
		}
		size := min(left, int(uint64(info.Base)+uint64(info.Len)-uint64(at)))
		mr, err := r.descriptor(at, size, a)
		if err != nil {
			return nil, errors.Join(err, m.Close())
		}
		m.pieces = append(m.pieces, mr)
		at, left = at+gpu.Ptr(size), left-size
	}
	return m, nil
}

// descriptor registers one range. The kernel holds the memory once it is
// registered, so the descriptor is closed at once.
func (r *Registrar) descriptor(p gpu.Ptr, n int, a ibverbs.Access) (*ibverbs.MR, error) {
	fd, offset, err := r.gpu.DMABuf(p, n)
	if err != nil {
		return nil, r.fail(p, n, err)
	}
	mr, err := r.pd.RegDMABuf(ibverbs.DMABuf{FD: fd, Offset: offset, Length: uint64(n), IOVA: uint64(p)}, a)
	if closed := unix.Close(fd); closed != nil {
		if err == nil {
			err = mr.Close()
		}
		return nil, r.fail(p, n, errors.Join(fmt.Errorf("close the descriptor of GPU memory: %w", closed), err))
	}
	if err != nil {
		return nil, r.fail(p, n, err)
	}
	return mr, nil
}

func (r *Registrar) fail(p gpu.Ptr, n int, err error) error {
	return fmt.Errorf("register %d bytes at %#x of GPU %d (%s) with %s: %w", n, uint64(p), r.gpu.Device().Index, r.gpu.Device().Name,
		r.pd.Info().Name, err)
}

// Len is the size in bytes.
func (m *Memory) Len() int { return m.n }

// Pieces is the registrations in the order of addresses; mostly one.
func (m *Memory) Pieces() []*ibverbs.MR { return m.pieces }

// SGEs appends the n bytes from off on to dst, as few pieces as there are. A range
// outside panics, as a slice expression does.
func (m *Memory) SGEs(dst []ibverbs.SGE, off, n int) []ibverbs.SGE {
	if off < 0 || n < 0 || off > m.n-n {
		panic(fmt.Sprintf("gdr: bytes %d to %d+%d are outside GPU memory of %d bytes", off, off, n, m.n))
	}
	for _, mr := range m.pieces {
		if off < mr.Len() && n > 0 {
			size := min(n, mr.Len()-off)
			dst = append(dst, mr.SGE(off, size))
			off, n = off+size, n-size
		}
		off = max(0, off-mr.Len())
	}
	return dst
}

// Close ends the registration. Requests still queued that use it fail. A second
// call does nothing.
func (m *Memory) Close() error {
	var errs []error
	for _, mr := range m.pieces {
		errs = append(errs, mr.Close())
	}
	m.pieces = nil
	return errors.Join(errs...)
}
