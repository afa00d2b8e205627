package gdr

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"syscall"

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
	peer string // the kernel's module for peer memory, "" if there is none or the device cannot use it
	way  *way
}

// way is what the Registrars of one GPU and one device know together.
type way struct {
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
	peer := peerModule(c.sys())
	if c.Device.Info().Software {
		peer = ""
	}
	return &Registrar{gpu: g, pd: pd, log: log, peer: peer, way: &way{decision: d}}, nil
}

// On is r for another protection domain of the same device: what one of them is refused, the other does not ask for again.
func (r *Registrar) On(pd *ibverbs.PD) *Registrar {
	other := *r
	other.pd = pd
	return &other
}

// Decision is the way that is gone now: a device that refuses one is not asked
// again.
func (r *Registrar) Decision() Decision {
	r.way.mu.Lock()
	defer r.way.mu.Unlock()
	return r.way.decision
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

// Register makes the n bytes at p reachable for the device with the rights a, of
// which ibverbs.RelaxedOrdering is a wish. Any offset and length will do. A device that refuses DMA-BUF is asked for peer memory,
// if the kernel has it, and the reason is logged once. The error wraps ErrStaged
// when no way is left.
func (r *Registrar) Register(p gpu.Ptr, n int, a ibverbs.Access) (*Memory, error) {
	d := r.Decision()
	if n < 1 {
		return nil, r.fail(p, n, fmt.Errorf("no memory: %w", syscall.EINVAL))
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
		if err == nil || !refused(err) && !errors.Is(err, syscall.EFAULT) { // the kernel's word for an address that no module knows
			return m, err
		}
		d = r.refuse(PeerMemory, err)
	}
	return nil, r.fail(p, n, fmt.Errorf("%w: %s", ErrStaged, d.Reason))
}

// refused reports whether an error says that a way does not exist, rather than
// that this memory or this moment is wrong for it.
func refused(err error) bool {
	return errors.Is(err, ibverbs.ErrNotSupported) || errors.Is(err, syscall.EOPNOTSUPP) || errors.Is(err, syscall.EPROTONOSUPPORT) ||
		errors.Is(err, errors.ErrUnsupported)
}

// refuse leaves a way for the next one that there may be.
func (r *Registrar) refuse(way Way, err error) Decision {
	r.way.mu.Lock()
	defer r.way.mu.Unlock()
	d := &r.way.decision
	if d.Way != way {
		return *d // somebody else found out
	}
	d.Way = Staged
	d.Reason = fmt.Sprintf("%v was refused: %v", way, err)
	if way == DMABuf && r.peer != "" {
		d.Way = PeerMemory
	}
	r.log.Warn("GPU memory cannot be registered that way", "gpu", r.gpu.Device().Name, "device", r.pd.Info().Name,
		"way", way.String(), "instead", d.Way.String(), "err", err)
	return *d
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
		return nil, errors.Join(err, asked) // one allocation: there is nothing to divide
	}
	for at, left := p, n; left > 0; {
		info, err := r.gpu.Address(at)
		if err != nil || !info.Device {
			return nil, errors.Join(r.fail(at, left, fmt.Errorf("not memory of the GPU: %w", syscall.EFAULT)), err, m.Close())
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
	mr, err := relaxed(a, func(a ibverbs.Access) (*ibverbs.MR, error) {
		return r.pd.RegDMABuf(ibverbs.DMABuf{FD: fd, Offset: offset, Length: uint64(n), IOVA: uint64(p)}, a)
	})
	if closed := os.NewFile(uintptr(fd), "GPU memory").Close(); closed != nil {
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

// relaxed does without ibverbs.RelaxedOrdering where the device or the kernel has none.
func relaxed(a ibverbs.Access, register func(ibverbs.Access) (*ibverbs.MR, error)) (*ibverbs.MR, error) {
	mr, err := register(a)
	if a&ibverbs.RelaxedOrdering != 0 && (errors.Is(err, syscall.EINVAL) || refused(err)) {
		return register(a &^ ibverbs.RelaxedOrdering)
	}
	return mr, err
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
