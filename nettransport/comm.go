package nettransport

import (
	"errors"
	"fmt"
	"net/netip"
	"sync/atomic"
	"time"

	"github.com/purerdma/purerdma/fifo"
	"github.com/purerdma/purerdma/ibverbs"
	"github.com/purerdma/purerdma/mr"
	"github.com/purerdma/purerdma/qp"
	"github.com/purerdma/purerdma/socketboot"
)

// Comm is one direction to one peer, the part that both ends have. It belongs to one goroutine at a time.
type Comm struct {
	t        *Transport
	nic      *nic
	layout   socketboot.Layout
	receives bool
	peer     netip.AddrPort
	conn     *socketboot.Conn
	gone     <-chan struct{}
	peerMeta socketboot.Metadata

	rails   []rail
	bundle  *qp.Bundle
	lanes   []lane
	k       int         // queue pairs of a message
	classes []qp.Option // told by a connector, from socketboot.Layout226 on
	mrs     map[*MR]struct{}
	buffers []*mr.Buffer // memory of the rings

	sizesIn  *fifo.Sizes // where a peer tells the sizes of groups, nil at the end that sends
	requests requests
	wcs      [16]ibverbs.WC
	stats    counters

	err    error                 // why the connection takes no more, for good
	told   atomic.Pointer[error] // err, for other goroutines
	closed bool
	faults atomic.Pointer[fault] // from the goroutine that reads events

	lastProgress time.Time // of the last completion, kept only while somebody watches
	goneAt       time.Time
	idles        uint
}

// Stats counts what a connection did since it was opened.
type Stats struct {
	Messages uint64 // requests that ended well, a group of buffers counting once for each
	Bytes    uint64
	// Truncated is how many messages were longer than the peer's buffer, of which the end was not sent.
	Truncated uint64
}

// counters is Stats as it is counted: by the connection's goroutine, while others read.
type counters struct{ messages, bytes, truncated atomic.Uint64 }

// SendComm is the end that sends.
type SendComm struct {
	Comm
	credits *fifo.Credits
	sizes   *fifo.SizesStaging
	slkeys  [maxDevs]uint32 // of sizes, by rail

	adaptive bool // the network may reorder packets on all rails

	head    uint64 // number of the next group
	group   [fifo.MaxRecvs]fifo.CTS
	n       int // buffers in group, 0 until it has arrived
	matched int
	slots   [fifo.MaxRecvs]*request
	wrs     [fifo.MaxRecvs + 1]ibverbs.SendWR
	sges    [fifo.MaxRecvs + 1]ibverbs.SGE
}

// RecvComm is the end that receives.
type RecvComm struct {
	Comm
	credits *fifo.CreditStaging
	clkeys  [maxDevs]uint32 // of credits, by rail
	flushes bool            // Config.Flush, or what is received lies where it must be flushed
	target  *mr.Buffer      // what a flush reads into
	tlkeys  [maxDevs]uint32 // of target, by rail

	tail   uint64 // number of the next group
	rows   [fifo.Rows]*request
	turn   int // the lane that carries the next credits, among the first of each rail
	offers [fifo.MaxRecvs]fifo.CTS
}

func (c *Comm) init(t *Transport, n *nic, receives bool) {
	c.t, c.nic, c.layout, c.receives = t, n, t.cfg.Net.Layout, receives
	c.mrs = map[*MR]struct{}{}
	c.requests.init(c)
}

func newSendComm(t *Transport, n *nic) *SendComm {
	c := &SendComm{}
	c.init(t, n, false)
	c.adaptive = t.cfg.AdaptiveRouting == On || t.cfg.AdaptiveRouting == Auto && n.ports[0].attr.LinkLayer == ibverbs.LinkInfiniBand
	return c
}

func newRecvComm(t *Transport, n *nic) *RecvComm {
	c := &RecvComm{flushes: t.cfg.Flush}
	c.init(t, n, true)
	return c
}

// prepare makes all of a sender's end but the way to the peer.
func (c *SendComm) prepare(peerDevs int) (socketboot.Metadata, error) {
	devs := max(len(c.nic.ports), peerDevs)
	n := c.t.cfg.QPsPerConn * devs
	if n > socketboot.MaxQPs {
		return socketboot.Metadata{}, configError("QPsPerConn", fmt.Sprintf("is %d for each of %d devices, and a connection has at most %d queue pairs",
			c.t.cfg.QPsPerConn, devs, socketboot.MaxQPs))
	}
	c.setK(devs, n)
	if err := c.build(n); err != nil {
		return socketboot.Metadata{}, err
	}
	var err error
	if c.credits, err = fifo.NewCredits(c.fifoLayout()); err != nil {
		return socketboot.Metadata{}, err
	}
	if c.sizes, err = fifo.NewSizesStaging(); err != nil {
		return socketboot.Metadata{}, errors.Join(err, c.credits.Close())
	}
	c.buffers = append(c.buffers, c.credits.Buffer(), c.sizes.Buffer())
	var unused [maxDevs]uint32
	if err := c.ring(c.credits.Buffer(), ringAccess, &unused); err != nil {
		return socketboot.Metadata{}, err
	}
	if err := c.ring(c.sizes.Buffer(), ringAccess, &c.slkeys); err != nil {
		return socketboot.Metadata{}, err
	}
	return c.metadata(0, c.credits.Buffer().Addr()), nil
}

// establish makes a receiver's end for a peer that has told all of its own.
func (c *RecvComm) establish(peerDevs int, meta *socketboot.Metadata) (socketboot.Metadata, error) {
	c.setK(max(len(c.nic.ports), peerDevs), len(meta.QPs))
	if c.layout.HasTrafficClass() {
		c.classes = classesOf(meta, c.nic.ports[0].attr.LinkLayer)
	}
	if err := c.build(len(meta.QPs)); err != nil {
		return socketboot.Metadata{}, err
	}
	if err := c.makeRings(); err != nil {
		return socketboot.Metadata{}, err
	}
	if err := c.connectLanes(meta); err != nil {
		return socketboot.Metadata{}, err
	}
	if c.flushes {
		if err := c.makeFlush(); err != nil {
			return socketboot.Metadata{}, err
		}
	}
	return c.metadata(0, c.sizesIn.Buffer().Addr()), nil
}

// classesOf is the traffic class and the service level of a connector, which its acceptor uses too. NCCL may tell more than a
// service level can be.
func classesOf(meta *socketboot.Metadata, link ibverbs.LinkLayer) []qp.Option {
	mask := uint8(15)
	if link == ibverbs.LinkEthernet {
		mask = 7
	}
	return []qp.Option{qp.WithTrafficClass(meta.TrafficClass), qp.WithServiceLevel(meta.ServiceLevel & mask)}
}

func (c *RecvComm) makeRings() error {
	var err error
	if c.sizesIn, err = fifo.NewSizes(c.fifoLayout()); err != nil {
		return err
	}
	c.buffers = append(c.buffers, c.sizesIn.Buffer())
	if c.credits, err = fifo.NewCreditStaging(c.fifoLayout()); err != nil {
		return err
	}
	c.buffers = append(c.buffers, c.credits.Buffer())
	var unused [maxDevs]uint32
	if err := c.ring(c.sizesIn.Buffer(), ringAccess, &unused); err != nil {
		return err
	}
	return c.ring(c.credits.Buffer(), ringAccess, &c.clkeys)
}

func (c *Comm) setK(devs, qps int) {
	c.k = devs
	if c.t.cfg.Split {
		c.k = qps
	}
}

// fifoLayout is the layout of the rings that goes with that of the handshake.
func (c *Comm) fifoLayout() fifo.Layout {
	switch {
	case c.layout >= socketboot.Layout230:
		return fifo.Layout230
	case c.layout >= socketboot.Layout2297:
		return fifo.Layout2297
	}
	return fifo.Layout225
}

// attach takes over the TCP connection of the handshake.
func (c *Comm) attach(conn *socketboot.Conn) {
	c.conn, c.gone = conn, conn.Gone()
	c.peer = conn.PeerAddr
}

// PeerAddr is the peer's TCP address.
func (c *Comm) PeerAddr() netip.AddrPort { return c.peer }

// PeerDevice is the name of the peer's logical NIC, as the peer told it.
func (c *Comm) PeerDevice() string { return c.peerMeta.DevName }

// Paths is the way of each queue pair of the connection, in the order of the cursor.
func (c *Comm) Paths() []qp.Path {
	paths := make([]qp.Path, len(c.lanes))
	for i := range c.lanes {
		paths[i] = c.lanes[i].qp.Path()
	}
	return paths
}

// Stats is what has been counted so far. Any goroutine may call it, at any time.
func (c *Comm) Stats() Stats {
	return Stats{Messages: c.stats.messages.Load(), Bytes: c.stats.bytes.Load(), Truncated: c.stats.truncated.Load()}
}

// Err is why the connection has failed or was closed, nil while it can be used. Any goroutine may call it, at any time.
func (c *Comm) Err() error {
	if err := c.told.Load(); err != nil {
		return *err
	}
	return nil
}

// end is the first reason for which the connection takes no more.
func (c *Comm) end(err error) {
	c.err = err
	c.told.Store(&err)
}

// Close ends the connection in any state and frees all of it: the socket, the queue pairs, the registrations, the queues, and the
// protection domain if no other connection uses it, in this order. Requests in flight end with ErrClosed; the peer's fail. A
// receiver closes when the sender has seen its last request end: before that the last acknowledgement may be lost with the queue
// pair, and the sender's request ends with ErrPeerGone although the data has arrived. A second Close is
// nil. Where the kernel refuses to free something, the rest is freed all the same and the errors are joined.
func (c *Comm) Close() error {
	if c.closed {
		return nil
	}
	c.closed = true
	if c.err == nil {
		c.end(&ibverbs.Error{Op: "use connection", Device: c.nic.name, Peer: c.peerName(), Err: ErrClosed})
	}
	var errs []error
	if c.conn != nil {
		errs = append(errs, c.conn.Close())
	}
	errs = append(errs, c.free())
	c.t.forget(c)
	return errors.Join(errs...)
}

// peerName is the peer for errors, as far as it is known.
func (c *Comm) peerName() string {
	s := "(not connected)"
	if c.peer.IsValid() {
		s = c.peer.String()
	}
	if c.peerMeta.DevName != "" {
		s += " (" + c.peerMeta.DevName + ")"
	}
	return s
}
