package link

import (
	"context"
	"errors"
	"io"
	"net/netip"
	"sync"
	"time"

	"github.com/purerdma/purerdma/ibverbs/softroce/internal/wire"
)

// Capture is a Link that writes what passes to a pcapng file, which Wireshark
// opens. IP and UDP headers are made up from what the link knows: the
// Identification that was sealed for or recovered, a hop limit of 64, DF.
//
// A record is written in the goroutine that sends or receives, so a slow writer
// slows the link. When the writer fails the capture ends, the link goes on, and
// Close returns the error.
type Capture struct {
	Link

	mu   sync.Mutex
	w    io.Writer
	file pcapng
	err  error
}

var (
	_ PortWatcher = (*Capture)(nil)
	_ Shared      = (*Capture)(nil)
)

// NewCapture puts a capture around a link. Name is what the file calls the
// interface. Each record goes to w by one call of Write; the caller closes w
// after the Capture.
func NewCapture(l Link, w io.Writer, name string) (*Capture, error) {
	c := &Capture{Link: l, w: w}
	if s, ok := l.(Classifier); ok {
		if err := s.ShowClass(); err != nil {
			return nil, err
		}
	}
	c.file.head(name)
	if _, err := w.Write(c.file.buf); err != nil {
		return nil, err
	}
	return c, nil
}

// Send captures the batch before it is sent: also what the host then refuses.
func (c *Capture) Send(batch []Datagrams) (int, error) {
	local := c.LocalAddr()
	c.record(batch, func(d *Datagrams) (src, dst netip.AddrPort) {
		src = local
		if d.SrcPort != 0 {
			src = netip.AddrPortFrom(local.Addr(), d.SrcPort)
		}
		return src, d.Addr
	}, true)
	return c.Link.Send(batch)
}

// Recv captures what came.
func (c *Capture) Recv(ctx context.Context, batch []Datagrams) (int, error) {
	n, err := c.Link.Recv(ctx, batch)
	c.received(batch[:n])
	return n, err
}

// TryRecv captures what came.
func (c *Capture) TryRecv(batch []Datagrams) (int, error) {
	n, err := c.Link.TryRecv(batch)
	c.received(batch[:n])
	return n, err
}

func (c *Capture) received(batch []Datagrams) {
	local := c.LocalAddr()
	c.record(batch, func(d *Datagrams) (src, dst netip.AddrPort) { return d.Addr, local }, false)
}

func (c *Capture) record(batch []Datagrams, ends func(*Datagrams) (src, dst netip.AddrPort), out bool) {
	if len(batch) == 0 {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err != nil {
		return
	}
	now := time.Now()
	c.file.buf = c.file.buf[:0]
	for i := range batch {
		d := &batch[i]
		src, dst := ends(d)
		path := wire.NewPath(src, dst)
		for k := range d.Len() {
			pkt, id := d.Segment(k), d.ID+uint16(k)
			if !out && !c.ShowsID() && len(pkt) >= wire.BTHSize+wire.ICRCSize {
				if known, ok := path.Check(pkt, id); ok {
					id = known
				}
			}
			c.file.packet(now, src, dst, d.TOS, id, pkt, out)
		}
	}
	_, c.err = c.w.Write(c.file.buf)
}

// Awaits says whether the link can.
func (c *Capture) Awaits() bool {
	s, ok := c.Link.(Shared)
	return ok && s.Awaits()
}

// Await sleeps as the link does.
func (c *Capture) Await() error {
	if s, ok := c.Link.(Shared); ok {
		return s.Await()
	}
	return errors.ErrUnsupported
}

// Rouse ends an Await of the link.
func (c *Capture) Rouse() {
	if s, ok := c.Link.(Shared); ok {
		s.Rouse()
	}
}

// OnPort watches the port of the link, if that can change.
func (c *Capture) OnPort(f func(up bool)) {
	if p, ok := c.Link.(PortWatcher); ok {
		p.OnPort(f)
	}
}

// Up is how the port of the link is.
func (c *Capture) Up() bool {
	p, ok := c.Link.(PortWatcher)
	return !ok || p.Up()
}

// Close closes the link. The error is the link's, or what ended the capture.
func (c *Capture) Close() error {
	if err := c.Link.Close(); err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err
}
