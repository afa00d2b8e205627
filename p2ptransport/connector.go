package p2ptransport

import (
	"errors"
	"fmt"
	"io"

	"golang.org/x/sys/unix"

	"github.com/purerdma/purerdma/gpu"
	"github.com/purerdma/purerdma/transport/driver"
)

// connector is one direction of one channel.
type connector struct {
	t            *Transport
	r            driver.Request
	read         bool
	mine, theirs layout
	own          *piece

	fetch *fetch // of the peer's piece, while it goes on
	life  *life  // of the peer, where it is another process that can be reached
	base  gpu.Ptr
	leave func() error // gives the peer's piece back
	conn  *driver.Conn
	shut  bool
}

var (
	_ driver.Connector = (*connector)(nil)
	_ driver.Watcher   = (*connector)(nil)
)

// Connect maps the peer's piece. Its descriptor is fetched in the background.
func (c *connector) Connect(in *driver.Blob) (done bool, err error) {
	o, err := decodeOffer(in, c.r.Peer, c.theirs.size)
	if err != nil {
		return false, err
	}
	if o.read != c.read {
		return false, fmt.Errorf("rank %d wants the receiver to %s, rank %d the other way: set NCCL_P2P_READ_ENABLE alike on all ranks", c.r.Peer.Rank,
			map[bool]string{true: "fetch", false: "wait"}[o.read], c.r.Self.Rank)
	}
	switch {
	case c.conn != nil:
		return true, nil
	case c.r.Self.SameProcess(c.r.Peer) && (!c.t.cfg.NoDirect || o.kind != descriptor):
		err = c.direct(&o)
	case o.kind == legacy || o.kind == descriptor:
		if done, err = c.fetched(&o); !done && err == nil {
			return false, nil
		}
	default:
		err = errors.New("the peer's GPU shares no memory with other processes")
	}
	if err != nil {
		return false, fmt.Errorf("GPU memory of rank %d: %w", c.r.Peer.Rank, err)
	}
	c.connect(&o)
	return true, nil
}

// direct finds the piece in this process. Another GPU than the piece's own maps it
// once more, or where it was not made to be shared reaches it as a peer.
func (c *connector) direct(o *offer) error {
	p := find(o.token)
	if p == nil {
		return fmt.Errorf("token %#x is of nothing in this process", o.token)
	}
	c.base, c.leave = p.ptr, p.leave
	if p.c.Device().UUID == c.own.c.Device().UUID {
		return nil
	}
	var err error
	if p.kind != descriptor {
		err = c.own.c.EnablePeer(p.c)
	} else {
		var fd int
		if fd, err = p.c.Export(p.alloc); err == nil {
			err = c.imported(fd, o.size)
		}
	}
	if err != nil {
		return errors.Join(err, p.leave())
	}
	if unmap := c.leave; p.kind == descriptor {
		c.leave = func() error { return errors.Join(unmap(), p.leave()) }
	}
	return nil
}

func (c *connector) legacy(o *offer) error {
	at, err := c.own.c.OpenIPC(o.handle)
	if err != nil {
		return err
	}
	c.base, c.leave = at, func() error { return c.own.c.CloseIPC(at) }
	return nil
}

// fetched maps the piece once its owner has answered. Of a legacy one the handle has come already, and its owner may be out of reach.
func (c *connector) fetched(o *offer) (done bool, err error) {
	if c.fetch == nil {
		c.fetch = startFetch(o)
	}
	fd, nc, done, err := c.fetch.result()
	if !done {
		return false, nil
	}
	c.fetch = nil
	if nc != nil && err == nil {
		c.life = watch(nc)
	}
	if o.kind == descriptor {
		if err != nil {
			return false, err
		}
		return true, c.imported(fd, o.size)
	}
	if err != nil {
		c.t.log.Warn("the end of a rank that shares GPU memory by a legacy handle will not be noticed", "rank", c.r.Self.Rank, "peer", c.r.Peer.Rank,
			"err", err)
	}
	return true, c.legacy(o)
}

// imported maps a piece by its descriptor, which it closes.
func (c *connector) imported(fd, size int) error {
	g := c.own.c
	a, err := g.Import(fd)
	if closed := unix.Close(fd); closed != nil && err == nil {
		return errors.Join(closed, g.Release(a))
	}
	if err != nil {
		return err
	}
	unit, err := g.Granularity()
	if err != nil {
		return errors.Join(err, g.Release(a))
	}
	n := (size + unit - 1) / unit * unit
	at, err := mapAll(g, a, n)
	if err != nil {
		return errors.Join(err, g.Release(a))
	}
	c.base, c.leave = at, func() error { return errors.Join(unmapAll(g, at, n), g.Release(a)) }
	return nil
}

// connect says where the data goes, and whether kernels may move it.
func (c *connector) connect(o *offer) {
	send, recv := end{c.own.ptr, c.mine}, end{c.base, c.theirs}
	if !c.r.Send {
		send, recv = recv, send
	}
	g := &driver.GPUConn{Context: c.t.cfg.GPU, Head: send.base, Tail: recv.base, Read: c.read}
	if !c.r.Self.SameProcess(c.r.Peer) && c.r.Self.GPUUUID == c.r.Peer.GPUUUID && !(c.t.mps && o.mps) {
		g.NoKernels = "the ranks share a GPU " + turns
		c.t.turns.Do(func() {
			c.t.log.Warn("kernels of two processes take turns on the GPU: copies move the data", "gpu", c.t.cfg.GPU.Device().Name,
				"rank", c.r.Self.Rank, "peer", c.r.Peer.Rank, "remedy", "run both under MPS (nvidia-cuda-mps-control -d)")
		})
	}
	for p, n := range c.r.Buffers {
		switch {
		case recv.buffers[p] > 0:
			g.Buffers[p] = recv.base + gpu.Ptr(recv.buffers[p])
		case send.buffers[p] > 0:
			g.Buffers[p] = send.base + gpu.Ptr(send.buffers[p])
		}
		g.Steps[p] = n / driver.Steps
	}
	c.conn = &driver.Conn{GPU: g}
}

// end is one end's piece as this process sees it.
type end struct {
	base gpu.Ptr
	layout
}

func (c *connector) Conn() *driver.Conn { return c.conn }

// Err is why the peer is gone, nil while it is there: ErrPeerGone, or io.EOF after it has closed. A peer of this process is never gone.
// Who waits for the other end's kernels or copies asks now and then, and ends its own. Any goroutine may call it once the connector is
// connected.
func (c *connector) Err() error {
	if c.life == nil {
		return nil
	}
	err := c.life.ended()
	if err != nil && err != io.EOF {
		err = fmt.Errorf("GPU memory of rank %d: %w", c.r.Peer.Rank, err)
	}
	return err
}

// Proxy is nil: the ends move the data themselves.
func (c *connector) Proxy() driver.Proxy { return nil }

func (c *connector) Close() error {
	if c.shut {
		return nil
	}
	c.shut = true
	var errs []error
	if c.fetch != nil {
		errs = append(errs, c.fetch.drop())
	}
	if c.life != nil {
		errs = append(errs, c.life.close())
	}
	if c.leave != nil {
		errs = append(errs, c.leave())
	}
	if c.t.door != nil {
		c.t.door.dismiss(c.own)
	}
	return errors.Join(append(errs, c.own.leave())...)
}
