package nettransport

import (
	"context"
	"errors"
	"time"

	"github.com/purerdma/purerdma/ibverbs"
	"github.com/purerdma/purerdma/mr"
	"github.com/purerdma/purerdma/qp"
	"github.com/purerdma/purerdma/socketboot"
)

// maxDevs is the most ports of a logical NIC in any layout.
const maxDevs = 8

// rail is what a connection has on one port of its NIC.
type rail struct {
	port  *port
	pd    *ibverbs.PD
	cache *mr.Cache
	cq    *ibverbs.CQ
	rings []*ibverbs.MR // of the rings and the flush target
	flush *qp.QP        // connected to itself, nil without flush
}

// lane is a queue pair of a connection. Lane q is on rail q modulo their number.
type lane struct {
	qp     *qp.QP
	rail   int
	remote int // index of the peer's device
}

const (
	sendDepth = 2 * MaxRequests
	recvDepth = MaxRequests
	inline    = 64 // bytes, a credit of one buffer
)

// build makes the rails and n lanes in INIT.
func (c *Comm) build(n int) error {
	for i, p := range c.nic.ports {
		pd, cache, err := p.dev.acquire()
		if err != nil {
			return err
		}
		c.rails = append(c.rails, rail{port: p, pd: pd, cache: cache})
		r := &c.rails[i]
		if r.cq, err = p.dev.ctx.CreateCQ(c.cqDepth(n, i)); err != nil {
			return err
		}
		p.dev.route(c, r.cq)
	}
	lanes := make([]qp.Lane, len(c.rails))
	for i := range c.rails {
		r := &c.rails[i]
		lanes[i] = qp.Lane{PD: r.pd, SendCQ: r.cq, RecvCQ: r.cq, Options: c.qpOptions(r.port)}
	}
	var err error
	if c.bundle, err = qp.NewBundle(lanes, n, c.t.cfg.EachQP); err != nil {
		return err
	}
	for q, pair := range c.bundle.QPs {
		c.lanes = append(c.lanes, lane{qp: pair, rail: qp.DeviceOf(q, len(c.rails))})
		c.rails[c.lanes[q].rail].port.dev.route(c, pair.QP)
	}
	return nil
}

// cqDepth is for all that can complete on a rail, after a failure too: each lane flushes up to sendDepth requests of a sender,
// or its receives and credits.
func (c *Comm) cqDepth(lanes, rail int) int {
	here := (lanes - rail + len(c.nic.ports) - 1) / len(c.nic.ports)
	depth := max(here, 1)*sendDepth + MaxRequests
	if most := c.nic.ports[rail].dev.attr.MaxCQE; most > 0 {
		if depth > most {
			c.t.log.Warn("the device's completion queues hold less than all queue pairs of a connection can have in flight",
				"device", c.nic.ports[rail].dev.name, "entries", most, "wanted", depth)
		}
		depth = min(depth, most)
	}
	return depth
}

func (c *Comm) qpOptions(p *port) []qp.Option {
	opts := []qp.Option{qp.WithDepth(sendDepth, recvDepth)}
	if c.t.cfg.Inline {
		opts = append(opts, qp.WithInline(inline))
	}
	opts = append(opts, c.t.cfg.QP...)
	if c.receives {
		opts = append(opts, c.classes...)
		opts = append(opts, c.t.cfg.RecvQP...)
	}
	return append(opts, qp.WithPort(p.num))
}

// ring registers a ring on each rail and returns its local keys.
func (c *Comm) ring(b *mr.Buffer, a ibverbs.Access, lkeys *[maxDevs]uint32) error {
	for i := range c.rails {
		r := &c.rails[i]
		m, err := r.pd.RegMR(b, a)
		if err != nil {
			return err
		}
		r.rings = append(r.rings, m)
		lkeys[i] = m.LKey()
	}
	return nil
}

// metadata describes the lanes; exported is the number of the ring, in the order of registration, that the peer writes.
func (c *Comm) metadata(exported int, at uint64) socketboot.Metadata {
	m := socketboot.Metadata{DevName: c.nic.name, FIFOAddr: at}
	infos := make([]qp.Info, len(c.rails))
	for _, l := range c.lanes {
		infos[l.rail] = l.qp.Info()
		m.QPs = append(m.QPs, socketboot.QPInfo{QPN: l.qp.Num(), DevIndex: l.rail})
	}
	for i := range c.rails {
		in := infos[i]
		m.Devs = append(m.Devs, socketboot.DevInfo{LID: uint32(in.LID), Port: uint8(in.Port), MTU: uint8(in.MTU), LinkLayer: uint8(in.LinkLayer),
			GID: in.GID, FIFORKey: c.rails[i].rings[exported].RKey()})
	}
	if c.layout.HasTrafficClass() {
		set := c.lanes[0].qp.Params()
		m.TrafficClass, m.ServiceLevel = set.TrafficClass, set.ServiceLevel
	}
	return m
}

// connectLanes brings queue pair q to RTS with the peer's queue pair q. The handshake has checked what the peer said.
func (c *Comm) connectLanes(peer *socketboot.Metadata) error {
	infos := make([]qp.Info, len(peer.QPs))
	for q, told := range peer.QPs {
		d := peer.Devs[told.DevIndex]
		infos[q] = qp.Info{GID: d.GID, QPN: told.QPN, LID: uint16(d.LID), Port: d.Port, LinkLayer: ibverbs.LinkLayer(d.LinkLayer), MTU: ibverbs.MTU(d.MTU)}
	}
	limit := c.t.cfg.Net.Deadlines.Step
	if limit == 0 {
		limit = 10 * time.Second
	}
	ctx, cancel := context.WithTimeoutCause(context.Background(), limit, errConnectTimeout)
	defer cancel()
	if err := c.bundle.Connect(ctx, infos); err != nil {
		return err
	}
	for q := range c.lanes {
		c.lanes[q].remote = peer.QPs[q].DevIndex
	}
	c.peerMeta = *peer
	return nil
}

var errConnectTimeout = errors.New("the peer's address did not resolve within Config.Net.Deadlines.Step")

// free undoes build and all that came after it, in NCCL's order: queue pairs, memory, CQ, protection domain.
func (c *Comm) free() error {
	var errs []error
	for i := range c.lanes {
		errs = append(errs, c.closeQP(c.lanes[i].rail, c.lanes[i].qp))
	}
	for i := range c.rails {
		errs = append(errs, c.closeQP(i, c.rails[i].flush))
	}
	for m := range c.mrs {
		errs = append(errs, m.put())
	}
	clear(c.mrs)
	for i := range c.rails {
		for _, m := range c.rails[i].rings {
			errs = append(errs, m.Close())
		}
	}
	for _, b := range c.buffers {
		errs = append(errs, b.Close())
	}
	for i := range c.rails {
		r := &c.rails[i]
		if r.cq != nil {
			r.port.dev.route(nil, r.cq)
			errs = append(errs, r.cq.Close())
		}
		errs = append(errs, r.port.dev.release())
	}
	c.bundle, c.lanes, c.rails, c.buffers = nil, nil, nil, nil
	return errors.Join(errs...)
}

func (c *Comm) closeQP(rail int, q *qp.QP) error {
	if q == nil {
		return nil
	}
	c.rails[rail].port.dev.route(nil, q.QP)
	return q.Close()
}
