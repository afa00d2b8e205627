package nettransport

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/purerdma/purerdma/ibverbs"
	"github.com/purerdma/purerdma/mr"
	"github.com/purerdma/purerdma/transport/driver"
)

// Driver is t behind the seam of package transport: NET in the choice of a transport for two ranks. t stays the caller's, who
// closes it after the communicators.
//
// Each connection is one of NCCL's NET transport with its buffers in host memory, not shared among peers: the receiver listens, its blob
// holds the handle at byte 0 and whether GPU memory is read directly, no, at byte 128; the sender's holds its rank at byte 0.
// Channels use the NICs in turn.
func (t *Transport) Driver() driver.Transport { return &seam{t: t} }

// Absent stands for NET at a rank without a usable device, and says why there is none: all ranks of a job have the same transports.
func Absent(why error) driver.Transport { return &seam{why: why} }

type seam struct {
	t   *Transport // nil without a device
	why error
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
	return driver.Verdict{OK: true}
}

func (s *seam) Setup(r driver.Request, out *driver.Blob) (driver.Connector, error) {
	if s.t == nil {
		return nil, &ibverbs.Error{Op: "set up", Object: "NET", Err: ErrNoNIC}
	}
	e := &end{t: s.t, send: r.Send, nic: r.Channel % len(s.t.nics), tag: int32(r.Peer.Rank)}
	if r.Send {
		e.tag = int32(r.Self.Rank) // both ends use the sender's rank
	}
	if err := e.allocate(r.Buffers); err != nil {
		return nil, errors.Join(err, e.Close())
	}
	if r.Send {
		binary.LittleEndian.PutUint32(out[:], uint32(r.Self.Rank))
		return e, nil
	}
	var err error
	if e.listener, err = s.t.Listen(context.Background(), e.nic); err != nil {
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
	conn   driver.Conn
	mrs    [driver.Protocols]*MR
	head   *driver.SendMem
	tail   *driver.RecvMem
	proxy  driver.Proxy
}

// allocate makes the memory of an end: both structures, then the buffers.
func (e *end) allocate(sizes [driver.Protocols]int) (err error) {
	const header = 4096
	total := 2 * header
	for _, n := range sizes {
		if n < 0 || n%driver.Steps != 0 || n > MaxMessage {
			return fmt.Errorf("nettransport: a buffer of %d bytes, want a multiple of %d up to %d", n, driver.Steps, MaxMessage)
		}
		total += n
	}
	if e.memory, err = mr.Alloc(total); err != nil {
		return err
	}
	at := 0
	part := func(n int) *mr.Buffer {
		if n == 0 || err != nil {
			return nil
		}
		var b *mr.Buffer
		b, err = e.memory.Slice(at, n)
		at += n
		return b
	}
	e.conn = driver.Conn{SendMem: part(header), RecvMem: part(header), FIFO: true}
	for p, n := range sizes {
		e.conn.Buffers[p] = part(n)
	}
	if err == nil {
		e.head, err = mr.View[driver.SendMem](e.memory, 0)
	}
	if err == nil {
		e.tail, err = mr.View[driver.RecvMem](e.memory, header)
	}
	if err == nil {
		for i := range e.tail.ConnFIFO {
			e.tail.ConnFIFO[i].Size = -1
		}
	}
	return err
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
	for p, b := range e.conn.Buffers {
		if b == nil {
			continue
		}
		if e.mrs[p], err = e.comm.RegMR(b); err != nil {
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
	for _, b := range []*mr.Buffer{e.conn.SendMem, e.conn.RecvMem, e.conn.Buffers[0], e.conn.Buffers[1], e.conn.Buffers[2], e.memory} {
		if b != nil {
			errs = append(errs, b.Close())
		}
	}
	e.conn, e.memory = driver.Conn{}, nil
	return errors.Join(errs...)
}
