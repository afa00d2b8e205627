package p2ptransport

import (
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"syscall"

	"github.com/purerdma/purerdma/gpu"
	"github.com/purerdma/purerdma/transport/driver"
)

// Transport is P2P for one rank. It implements transport/driver.Transport.
type Transport struct {
	cfg   Config
	log   *slog.Logger
	kind  kind   // of this rank's pieces
	why   string // not kind descriptor, not legacy
	mps   bool   // kernels of processes run beside each other on the GPU
	door  *door
	once  sync.Once // that ranks share a GPU is told
	turns sync.Once // and that they take turns
}

// New makes the transport of a rank with a GPU. Close it after the communicators
// that use it.
func New(cfg Config) (*Transport, error) {
	if cfg.Driver == nil || cfg.GPU == nil {
		return nil, fmt.Errorf("P2P needs a GPU: Config.Driver and Config.GPU: %w", syscall.EINVAL)
	}
	t := &Transport{cfg: cfg, log: cfg.Log}
	if t.log == nil {
		t.log = slog.Default()
	}
	var err error
	if t.kind, err = t.bestKind(); err != nil {
		return nil, err
	}
	if t.mps, err = t.has(gpu.SharedByProcesses); err != nil {
		return nil, err
	}
	if t.kind != none {
		if t.door, err = openDoor(t.log); err != nil {
			return nil, err
		}
	}
	return t, nil
}

// has asks for an attribute that is 0 or 1; a driver that is too old to know it has not.
func (t *Transport) has(a gpu.Attribute) (bool, error) {
	v, err := t.cfg.Driver.Attribute(t.cfg.GPU.Device().Index, a)
	if errors.Is(err, errors.ErrUnsupported) {
		return false, nil
	}
	return v != 0, err
}

// bestKind is how the GPU's driver shares memory, and why not better.
func (t *Transport) bestKind() (kind, error) {
	vmm, err := t.has(gpu.HasVMM)
	if err != nil {
		return none, err
	}
	fds, err := t.has(gpu.HasFDHandles)
	switch {
	case err != nil:
		return none, err
	case t.cfg.NoCUMEM:
		t.why = "NCCL_CUMEM_ENABLE=0"
	case !vmm || !fds:
		t.why = "the GPU's driver is too old to share memory by descriptor"
	default:
		return descriptor, nil
	}
	// Legacy handles are tried (WSL has none): NCCL probes the same.
	p, err := t.cfg.GPU.Alloc(pieceUnit)
	if err != nil {
		return none, err
	}
	_, refused := t.cfg.GPU.IPCHandle(p)
	if err := t.cfg.GPU.Free(p); err != nil {
		return none, err
	}
	if refused != nil {
		t.why += ", and refuses a legacy handle: " + refused.Error()
		t.log.Warn("the GPU's driver shares no memory between processes", "gpu", t.cfg.GPU.Device().Name, "err", refused)
		return none, nil
	}
	return legacy, nil
}

// Name is "P2P".
func (*Transport) Name() string { return "P2P" }

// Describe fills in the rank's GPU.
func (t *Transport) Describe(self *driver.PeerInfo) error {
	d := t.cfg.GPU.Device()
	self.BusID, self.GPUUUID, self.ComputeCap = uint64(d.PCI.Int64()), uuid(d), uint32(10*d.Major+d.Minor)
	if self.GPUUUID == [16]byte{} {
		return fmt.Errorf("GPU %d has no UUID that can be read: %q", d.Index, d.UUID)
	}
	return nil
}

// Close ends the passing of descriptors. A second call is nil.
func (t *Transport) Close() error {
	if t.door == nil {
		return nil
	}
	return t.door.close()
}

// Setup allocates this end's piece.
func (t *Transport) Setup(r driver.Request, out *driver.Blob) (driver.Connector, error) {
	mid, why, err := t.between(r.Peer)
	if err == nil && why != "" {
		err = errors.New(why)
	}
	if err != nil {
		return nil, err
	}
	on, at, read := t.cfg.GPU.Device(), r.Peer.GPUUUID, t.reads(r.Self, r.Peer)
	if mid != nil {
		on, at, read = *mid, uuid(*mid), false
	}
	c := &connector{t: t, r: r, read: read, at: at, mine: layoutOf(r.Send, read, r.Buffers), theirs: layoutOf(!r.Send, read, r.Buffers)}
	if c.own, err = newPiece(t.cfg.Driver, on.Index, c.mine.size, t.kind); err != nil {
		return nil, err
	}
	o := offer{rank: r.Self.Rank, read: read, token: c.own.token, size: c.mine.size, kind: t.kind, mps: t.mps, handle: c.own.handle, gpu: uuid(on)}
	if c.g, err = t.cfg.Driver.Open(t.cfg.GPU.Device().Index); err != nil {
		return nil, errors.Join(err, c.Close())
	}
	if c.near, c.far, err = c.reach(c.own); err != nil {
		return nil, errors.Join(err, c.Close())
	}
	if t.door != nil {
		if o.socket, err = t.door.admit(c.own); err != nil {
			return nil, errors.Join(err, c.Close())
		}
	}
	o.encode(out)
	return c, nil
}
