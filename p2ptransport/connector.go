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
	at           [16]byte // UUID of the GPU that the peer's piece is on
	mine, theirs layout
	own          *piece
	g            gpu.Context  // a hold on the rank's GPU
	near         gpu.Ptr      // the own piece, as that addresses it
	far          func() error // gives that address back, nil where there is nothing to give

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
	o, err := decodeOffer(in, c.r.Peer, c.theirs.size, c.at)
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

// direct finds the piece in this process.
func (c *connector) direct(o *offer) error {
	p := find(o.token)
	if p == nil {
		return fmt.Errorf("token %#x is of nothing in this process", o.token)
	}
	at, unmap, err := c.reach(p)
	if err != nil {
		return errors.Join(err, p.leave())
	}
	c.base, c.leave = at, p.leave
	if unmap != nil {
		c.leave = func() error { return errors.Join(unmap(), p.leave()) }
	}
	return nil
}

// reach gives the address by which the rank's GPU reaches a piece of this process. One on another GPU it maps once more, or where it was
// not made to be shared reaches as a peer.
func (c *connector) reach(p *piece) (at gpu.Ptr, unmap func() error, err error) {
	switch {
	case p.c.Device().UUID == c.g.Device().UUID:
		return p.ptr, nil, nil
	case p.kind != descriptor:
		return p.ptr, nil, c.g.EnablePeer(p.c)
	}
	fd, err := p.c.Export(p.alloc)
	if err != nil {
		return 0, nil, err
	}
	return c.imported(fd, p.size)
}

func (c *connector) legacy(o *offer) (err error) {
	if c.base, err = c.g.OpenIPC(o.handle); err != nil {
		return err
	}
	at := c.base
	c.leave = func() error { return c.g.CloseIPC(at) }
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
		c.base, c.leave, err = c.imported(fd, o.size)
		return true, err
	}
	if err != nil {
		c.t.log.Warn("the end of a rank that shares GPU memory by a legacy handle will not be noticed", "rank", c.r.Self.Rank, "peer", c.r.Peer.Rank,
			"err", err)
	}
	return true, c.legacy(o)
}

// imported maps a piece by its descriptor, which it closes, on the rank's GPU.
func (c *connector) imported(fd, size int) (at gpu.Ptr, unmap func() error, err error) {
	g := c.g
	a, err := g.Import(fd)
	if closed := unix.Close(fd); closed != nil && err == nil {
		return 0, nil, errors.Join(closed, g.Release(a))
	}
	if err != nil {
		return 0, nil, err
	}
	unit, err := g.Granularity()
	if err != nil {
		return 0, nil, errors.Join(err, g.Release(a))
	}
	n := (size + unit - 1) / unit * unit
	if at, err = mapAll(g, a, n); err != nil {
		return 0, nil, errors.Join(err, g.Release(a))
	}
	return at, func() error { return errors.Join(unmapAll(g, at, n), g.Release(a)) }, nil
}

// connect says where the data goes, and whether kernels may move it.
func (c *connector) connect(o *offer) {
	send, recv := end{c.near, c.mine}, end{c.base, c.theirs}
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
	if c.far != nil {
		errs = append(errs, c.far())
	}
	errs = append(errs, c.own.leave())
	if c.g != nil {
		errs = append(errs, c.g.Close())
	}
	return errors.Join(errs...)
}
