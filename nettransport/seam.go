package nettransport

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"sync"
	"unsafe"

	"github.com/purerdma/purerdma/gpu"
	"github.com/purerdma/purerdma/ibverbs"
	"github.com/purerdma/purerdma/mr"
	"github.com/purerdma/purerdma/transport/driver"
)

// Driver is t behind the seam of package transport: NET in the choice of a transport for two ranks. t stays the caller's, who
// closes it after the communicators.
//
// Each connection is one of NCCL's NET transport with buffers of its own, not shared among peers: the receiver listens, its blob
// holds the handle at byte 0; the sender's holds its rank there; both hold at byte 128 whether devices reach the buffers in GPU memory.
// Channels use the NICs in turn.
//
// With Config.GPU the buffers lie where NCCL has them: in the GPU's memory where all devices of the NIC reach that (package gdr), but
// for a sender's of LL; else in pinned host memory that the GPU reaches, through which the data then goes step by step, the
// network moving some while the GPU fills or empties others. Which it is and why, CanConnect says and the log, once. SendMem and
// RecvMem are host memory that the GPU reaches.
func (t *Transport) Driver() driver.Transport { return &seam{t: t} }

// Absent stands for NET at a rank without a usable device, and says why there is none: all ranks of a job have the same transports.
func Absent(why error) driver.Transport { return &seam{why: why} }

type seam struct {
	t   *Transport // nil without a device
	why error

	mu   sync.Mutex
	nics []reached
}

func (s *seam) Name() string { return "NET" }

// Describe names the bytes that this end speaks, 15 characters at most: no two layouts understand each other.
func (s *seam) Describe(self *driver.PeerInfo) error {
	if s.t != nil {
		self.Net = "IB" + s.t.cfg.Net.Layout.String()
	}
	return nil
}

func (s *seam) CanConnect(self, peer *driver.PeerInfo) driver.Verdict {
	switch {
	case self.Net == "" && s.why != nil:
		return driver.Verdict{Reason: fmt.Sprintf("rank %d has no device: %v", self.Rank, s.why)}
	case self.Net == "":
		return driver.Verdict{Reason: fmt.Sprintf("rank %d has no device", self.Rank)}
	case peer.Net == "":
		return driver.Verdict{Reason: fmt.Sprintf("rank %d has no device", peer.Rank)}
	case self.Net != peer.Net:
		return driver.Verdict{Reason: fmt.Sprintf("rank %d speaks %s, rank %d %s", self.Rank, self.Net, peer.Rank, peer.Net)}
	}
	if s.t == nil {
		return driver.Verdict{OK: true}
	}
	how, err := s.how()
	if err != nil {
		return driver.Verdict{Reason: fmt.Sprintf("rank %d: %v", self.Rank, err)}
	}
	return driver.Verdict{OK: true, Reason: how}
}

func (s *seam) Setup(r driver.Request, out *driver.Blob) (driver.Connector, error) {
	if s.t == nil {
		return nil, &ibverbs.Error{Op: "set up", Object: "NET", Err: ErrNoNIC}
	}
	e := &end{t: s.t, send: r.Send, nic: r.Channel % len(s.t.nics), tag: int32(r.Peer.Rank)}
	if r.Send {
		e.tag = int32(r.Self.Rank) // both ends use the sender's rank
	}
	at, err := s.places(e.nic, r.Send)
	if err != nil {
		return nil, err
	}
	e.gpu.c, e.flush = s.t.cfg.GPU, at.flush && !r.Send
	if err := e.allocate(r.Buffers, at); err != nil {
		return nil, errors.Join(err, e.Close())
	}
	if at.gpu[driver.Simple] {
		binary.LittleEndian.PutUint32(out[128:], 1)
	}
	if r.Send {
		binary.LittleEndian.PutUint32(out[:], uint32(r.Self.Rank))
		return e, nil
	}
	if e.listener, err = s.t.listen(context.Background(), e.nic, e.flush); err != nil {
		return nil, errors.Join(err, e.Close())
	}
	h := e.listener.Handle()
	copy(out[:], h[:])
	return e, nil
}

// end is one end of a connection behind the seam. Its SendMem and RecvMem are its own: the proxies at both ends move what the peer's
// would say.
type end struct {
	t    *Transport
	send bool
	nic  int
	tag  int32

	listener *Listener // of a receiver, until it has accepted
	pending  *Pending  // of a sender, until it is connected
	comm     *Comm
	sender   *SendComm
	receiver *RecvComm

	memory *mr.Buffer
	gpu    gpuEnd
	flush  bool // what comes into GPU memory is flushed
	sizes  [driver.Protocols]int
	conn   driver.Conn
	mrs    [driver.Protocols]*MR
	head   *driver.SendMem
	tail   *driver.RecvMem
	proxy  driver.Proxy
}

// header is the room of SendMem and of RecvMem, and what buffers are aligned to.
const header = 4096

// allocate makes the memory of an end: both structures, then the buffers; those in GPU memory are one allocation of their own.
func (e *end) allocate(sizes [driver.Protocols]int, at places) (err error) {
	host, device := 2*header, 0
	var offsets [driver.Protocols]int
	for p, n := range sizes {
		if n < 0 || n%driver.Steps != 0 || n > MaxMessage {
			return fmt.Errorf("nettransport: a buffer of %d bytes, want a multiple of %d up to %d", n, driver.Steps, MaxMessage)
		}
		in := &host
		if at.gpu[p] {
			in = &device
		}
		offsets[p] = *in
		*in += (n + header - 1) / header * header
	}
	if e.memory, err = mr.Alloc(host); err != nil {
		return err
	}
	e.sizes, e.conn.FIFO = sizes, true
	part := func(at, n int) *mr.Buffer {
		var b *mr.Buffer
		if err == nil {
			b, err = e.memory.Slice(at, n)
		}
		return b
	}
	e.conn.SendMem, e.conn.RecvMem = part(0, header), part(header, header)
	for p, n := range sizes {
		if n > 0 && !at.gpu[p] {
			e.conn.Buffers[p] = part(offsets[p], n)
		}
	}
	if err == nil {
		e.head, err = mr.View[driver.SendMem](e.memory, 0)
	}
	if err == nil {
		e.tail, err = mr.View[driver.RecvMem](e.memory, header)
	}
	if err != nil {
		return err
	}
	for i := range e.tail.ConnFIFO {
		e.tail.ConnFIFO[i].Size = -1
	}
	if e.gpu.c == nil {
		return nil
	}
	return e.share(host, device, offsets, at)
}

// share makes the buffers in GPU memory, and the GPU reach those of the host.
func (e *end) share(host, device int, offsets [driver.Protocols]int, at places) error {
	g := &e.gpu
	base, err := g.c.RegisterHost(uintptr(e.memory.Addr()), host)
	if err != nil {
		return fmt.Errorf("nettransport: buffers for the GPU: %w", err)
	}
	g.registered = uintptr(e.memory.Addr())
	if device > 0 {
		if g.memory, err = g.c.Alloc(device); err == nil {
			err = g.clear(g.memory, device)
		}
		if err != nil {
			return fmt.Errorf("nettransport: buffers on the GPU: %w", err)
		}
	}
	c := &driver.GPUConn{Context: g.c, Head: base, Tail: base + header, FIFO: base + header + gpu.Ptr(unsafe.Offsetof(e.tail.ConnFIFO))}
	for p, n := range e.sizes {
		if c.Steps[p] = n / driver.Steps; n == 0 {
			continue
		}
		if c.Buffers[p] = base + gpu.Ptr(offsets[p]); at.gpu[p] {
			c.Buffers[p] = g.memory + gpu.Ptr(offsets[p])
		}
	}
	e.conn.GPU = c
	return nil
}

// Connect is [driver.Connector.Connect].
func (e *end) Connect(in *driver.Blob) (done bool, err error) {
	if e.proxy != nil {
		return true, nil
	}
	if e.send {
		done, err = e.dial(in)
	} else {
		done, err = e.accept()
	}
	if !done || err != nil {
		return false, err
	}
	for p := range driver.Protocol(driver.Protocols) {
		if err := e.register(p); err != nil {
			return false, err
		}
	}
	e.proxy = newProxy(e)
	return true, nil
}

func (e *end) dial(in *driver.Blob) (done bool, err error) {
	if e.pending == nil {
		var h Handle
		copy(h[:], in[:])
		if err := h.Check(); err != nil {
			return false, err
		}
		e.pending, err = e.t.Start(e.nic, h)
		return false, err
	}
	if e.sender, err = e.pending.Comm(); e.sender == nil {
		return false, err
	}
	e.comm = &e.sender.Comm
	return true, nil
}

func (e *end) accept() (done bool, err error) {
	if e.receiver, err = e.listener.TryAccept(); e.receiver == nil {
		return false, err
	}
	e.comm = &e.receiver.Comm
	err = e.listener.Close() // it was for this peer alone
	e.listener = nil
	return true, err
}

// Conn is [driver.Connector.Conn].
func (e *end) Conn() *driver.Conn { return &e.conn }

// Proxy is [driver.Connector.Proxy].
func (e *end) Proxy() driver.Proxy { return e.proxy }

// Close is [driver.Connector.Close]. The engine must have let go of the proxy.
func (e *end) Close() error {
	var errs []error
	if e.pending != nil {
		errs = append(errs, e.pending.Close())
		e.pending = nil
	}
	if e.listener != nil {
		errs = append(errs, e.listener.Close())
		e.listener = nil
	}
	if e.comm != nil {
		errs = append(errs, e.comm.Close())
		e.comm = nil
	}
	errs = append(errs, e.gpu.close())
	for _, b := range []*mr.Buffer{e.conn.SendMem, e.conn.RecvMem, e.conn.Buffers[0], e.conn.Buffers[1], e.conn.Buffers[2], e.memory} {
		if b != nil {
			errs = append(errs, b.Close())
		}
	}
	e.conn, e.memory = driver.Conn{}, nil
	return errors.Join(errs...)
}
