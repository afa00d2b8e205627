package shmtransport

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/purerdma/purerdma/gpu"
	"github.com/purerdma/purerdma/mr"
	"github.com/purerdma/purerdma/transport/driver"
)

// Connector is one direction of one channel to one peer.
//
// Both ends see NCCL's layout ([Connector.Conn]): SendMem, RecvMem and the buffers, in one file. NCCL has two, one of each end; what they
// hold, and how head and tail move, is the same. Where neither rank has a GPU there is a ring beside it, on which messages of bytes
// travel faster ([Connector.Sender], [Connector.Receiver]); the two do not disturb each other.
type Connector struct {
	transport *Transport
	peer      string // socket
	rank      int
	mine      blob

	// Of the sending end: the goroutine that dials.
	cancel context.CancelFunc
	dialed chan error
	// Of the receiving end, by file.
	file *File

	mu     sync.Mutex // of what the transport's goroutine touches
	closed bool
	all    *mr.Buffer // what lies behind the rings
	joined *Conn

	parts    []*mr.Buffer
	shown    uintptr      // what the GPU has registered, 0 for nothing
	conn     *driver.Conn // once connected
	sender   *Sender
	receiver *Receiver
}

var (
	_ driver.Connector = (*Connector)(nil)
	_ driver.Ringer    = (*Connector)(nil)
	_ driver.Watcher   = (*Connector)(nil)
)

func (c *Connector) error(err error) error {
	verb := "receiving from"
	if c.mine.send {
		verb = "sending to"
	}
	return fmt.Errorf("SHM, %s rank %d: %w", verb, c.rank, err)
}

// part is a size rounded up to pages: parts are mapped by themselves.
func part(n int) int64 { return (int64(n) + pageSize - 1) / pageSize * pageSize }

// extra is what the layout takes: SendMem, RecvMem and the buffers.
func (c *Connector) extra() int64 {
	sum := int64(2 * pageSize)
	for _, n := range c.mine.buffers {
		sum += part(n)
	}
	return sum
}

// options are those of the connection. Rings that nobody uses are as small as there are.
func (c *Connector) options() options {
	o := newOptions(nil)
	if !c.mine.rings {
		o.cells, o.data = minCells, minData
	}
	o.extra, o.token, o.mapped = c.extra(), c.mine.token, c.memory
	return o
}

// prepare is Setup of the receiving end.
func (c *Connector) prepare(dir string) (err error) {
	if c.mine.way == bySocket {
		c.mine.token = newToken()
		return c.transport.expect(c)
	}
	if c.file, err = makeFile(dir, c.options()); err != nil {
		return errors.Join(err, c.Close())
	}
	c.mine.file = c.file.Name()
	return nil
}

// arrive takes a connection for this end, or says that it is too late.
func (c *Connector) arrive(conn *Conn) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed || c.joined != nil {
		return false
	}
	c.joined = conn
	return true
}

// Connect implements [driver.Connector].
func (c *Connector) Connect(in *driver.Blob) (done bool, err error) {
	if c.conn != nil {
		return true, nil
	}
	theirs, err := decodeBlob(in, &c.mine)
	if err != nil {
		return false, c.error(err)
	}
	switch {
	case c.mine.send && c.mine.way == bySocket:
		err = c.dialOn(theirs.token)
	case c.mine.send:
		err = c.attach(theirs.file)
	case c.mine.way == byFile:
		err = c.attached()
	}
	if err == nil {
		done, err = c.finish()
	}
	if err != nil {
		return false, c.error(err)
	}
	return done, nil
}

// dialOn starts the goroutine that dials, or sees what it has come to.
func (c *Connector) dialOn(token Token) error {
	if c.dialed == nil {
		ctx, cancel := context.WithCancel(context.Background())
		c.cancel, c.dialed = cancel, make(chan error, 1)
		o := c.options()
		o.token = token
		go func() {
			conn, err := dial(ctx, c.peer, o)
			if err == nil && !c.arrive(conn) {
				err = conn.Close()
			}
			c.dialed <- err
		}()
	}
	select {
	case err := <-c.dialed:
		c.dialed <- nil // for Close
		return err
	default:
		return nil
	}
}

func (c *Connector) attach(name string) error {
	conn, err := attachFile(c.transport.config.Dir, name, c.options())
	if err == nil {
		c.arrive(conn)
	}
	return err
}

func (c *Connector) attached() error {
	if !c.file.attached() {
		return nil
	}
	conn, err := c.file.conn()
	if err == nil {
		c.arrive(conn)
	}
	return err
}

// finish lays the parts out once there is a connection.
func (c *Connector) finish() (done bool, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.joined == nil {
		return false, nil
	}
	conn, off := &driver.Conn{}, int64(0)
	cut := func(n int) (b *mr.Buffer) {
		if n > 0 && err == nil {
			if b, err = c.all.Slice(int(off), n); err == nil {
				c.parts = append(c.parts, b)
			}
		}
		off += part(n)
		return b
	}
	conn.SendMem, conn.RecvMem = cut(pageSize), cut(pageSize)
	for p, n := range c.mine.buffers {
		conn.Buffers[p] = cut(n)
	}
	if err != nil {
		return false, err
	}
	if err := c.register(conn); err != nil {
		return false, err
	}
	s, r, err := c.joined.Split()
	if err != nil {
		return false, err
	}
	if c.mine.rings {
		if c.mine.send {
			c.sender = s
		} else {
			c.receiver = r
		}
	}
	c.conn = conn
	return true, nil
}

// register makes the rank's GPU reach the memory, if there is one.
func (c *Connector) register(conn *driver.Conn) error {
	g := c.transport.config.GPU
	if g == nil {
		return nil
	}
	base, err := g.RegisterHost(uintptr(c.all.Addr()), c.all.Len())
	if err != nil {
		return fmt.Errorf("shared memory for the GPU: %w", err)
	}
	c.shown = uintptr(c.all.Addr())
	at := base + 2*pageSize
	conn.GPU = &driver.GPUConn{Context: g, Head: base, Tail: base + pageSize}
	for p, n := range c.mine.buffers {
		if n > 0 {
			conn.GPU.Buffers[p], conn.GPU.Steps[p] = at, n/driver.Steps
		}
		at += gpu.Ptr(part(n))
	}
	return nil
}

// Conn implements [driver.Connector].
func (c *Connector) Conn() *driver.Conn { return c.conn }

// Sender is the sending end of the ring beside the layout, for messages of bytes: nil before Connect is done, at the receiving end, and
// where a rank has a GPU. It ends with Close.
func (c *Connector) Sender() *Sender { return c.sender }

// Receiver is the receiving end of it, nil likewise.
func (c *Connector) Receiver() *Receiver { return c.receiver }

// Ring implements [driver.Ringer].
func (c *Connector) Ring() (driver.RingSender, driver.RingReceiver) {
	switch {
	case c.sender != nil:
		return c.sender, nil
	case c.receiver != nil:
		return nil, c.receiver
	}
	return nil, nil
}

// Err is why the peer is gone, nil while it is there: ErrPeerGone, io.EOF after it has closed, ErrProtocol. Whoever moves data by the
// layout asks now and then while it waits.
func (c *Connector) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.joined == nil {
		return nil
	}
	return c.joined.life.receiving(false)
}

// Proxy is nil: the ends move the data themselves.
func (c *Connector) Proxy() driver.Proxy { return nil }

// Close implements [driver.Connector].
func (c *Connector) Close() error {
	c.mu.Lock()
	if c.closed {
		c.mu.Unlock()
		return nil
	}
	c.closed = true
	c.mu.Unlock()
	if c.dialed != nil {
		c.cancel()
		<-c.dialed
	}
	c.transport.forget(c.mine.token)
	var errs []error
	if c.file != nil {
		errs = append(errs, c.file.Close())
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.joined != nil {
		errs = append(errs, c.joined.Close())
	}
	if c.shown != 0 {
		errs = append(errs, c.transport.config.GPU.UnregisterHost(c.shown))
	}
	for _, b := range c.parts {
		errs = append(errs, b.Close())
	}
	if c.all != nil {
		errs = append(errs, c.all.Close())
	}
	return errors.Join(errs...)
}
