package nettransport

import (
	"context"
	"net/netip"
	"sync"
	"testing"
	"time"

	"github.com/purerdma/purerdma/ibverbs"
	"github.com/purerdma/purerdma/mr"
	"github.com/purerdma/purerdma/qp"
	"github.com/purerdma/purerdma/socketboot"
)

// puppet is a peer that does what a test says: NCCL's recorded end, or a hostile one. Its memory is the ring that the other end
// writes, the copy of the ring that it writes itself, and data.
type puppet struct {
	t     testing.TB
	nic   NIC
	nqps  int                          // of a connector
	twist func(m *socketboot.Metadata) // changes what it tells

	pds    []*ibverbs.PD
	cqs    []*ibverbs.CQ
	mrs    []*ibverbs.MR
	bundle *qp.Bundle
	buf    *mr.Buffer
	theirs socketboot.Metadata
	conn   *socketboot.Conn
	once   sync.Once
}

const (
	puppetStaging = 128 << 10
	puppetData    = 256 << 10
	puppetMemory  = 512 << 10
)

func (p *puppet) Devices() socketboot.DevList {
	return socketboot.DevList{Devs: make([]int32, len(p.nic))}
}

func (p *puppet) Prepare(socketboot.DevList) (socketboot.Metadata, error) { return p.make(p.nqps) }

func (p *puppet) Ready(peer *socketboot.Metadata) error { return p.join(peer) }

func (p *puppet) Establish(_ socketboot.DevList, peer *socketboot.Metadata) (socketboot.Metadata, error) {
	m, err := p.make(len(peer.QPs))
	if err != nil {
		return m, err
	}
	return m, p.join(peer)
}

func (p *puppet) Abort(error) { p.close() }

func (p *puppet) make(n int) (m socketboot.Metadata, err error) {
	if p.buf, err = mr.Alloc(puppetMemory); err != nil {
		return m, err
	}
	var lanes []qp.Lane
	for _, port := range p.nic {
		pd, err := port.Device.AllocPD()
		if err != nil {
			return m, err
		}
		p.pds = append(p.pds, pd)
		cq, err := port.Device.CreateCQ(8192)
		if err != nil {
			return m, err
		}
		p.cqs = append(p.cqs, cq)
		r, err := pd.RegMR(p.buf, ringAccess)
		if err != nil {
			return m, err
		}
		p.mrs = append(p.mrs, r)
		lanes = append(lanes, qp.Lane{PD: pd, SendCQ: cq, RecvCQ: cq})
	}
	if p.bundle, err = qp.NewBundle(lanes, n, nil); err != nil {
		return m, err
	}
	m = socketboot.Metadata{DevName: "puppet", FIFOAddr: p.buf.Addr()}
	for q, pair := range p.bundle.QPs {
		m.QPs = append(m.QPs, socketboot.QPInfo{QPN: pair.Num(), DevIndex: q % len(p.nic)})
	}
	for i := range p.nic {
		in := p.bundle.QPs[min(i, n-1)].Info()
		m.Devs = append(m.Devs, socketboot.DevInfo{Port: in.Port, MTU: uint8(in.MTU), LinkLayer: uint8(in.LinkLayer), GID: in.GID, FIFORKey: p.mrs[i].RKey()})
	}
	if p.twist != nil {
		p.twist(&m)
	}
	return m, nil
}

func (p *puppet) join(peer *socketboot.Metadata) error {
	p.theirs = *peer
	var infos []qp.Info
	for _, q := range peer.QPs {
		d := peer.Devs[q.DevIndex]
		infos = append(infos, qp.Info{GID: d.GID, QPN: q.QPN, Port: d.Port, LinkLayer: ibverbs.LinkLayer(d.LinkLayer), MTU: ibverbs.MTU(d.MTU)})
	}
	return p.bundle.Connect(context.Background(), infos)
}

// close frees all, as when the process ends.
func (p *puppet) close() {
	p.once.Do(func() {
		if p.conn != nil {
			_ = p.conn.Close()
		}
		if p.bundle != nil {
			if err := p.bundle.Close(); err != nil {
				p.t.Error(err)
			}
		}
		for _, m := range p.mrs {
			if err := m.Close(); err != nil {
				p.t.Error(err)
			}
		}
		for i := range p.pds {
			if i < len(p.cqs) {
				if err := p.cqs[i].Close(); err != nil {
					p.t.Error(err)
				}
			}
			if err := p.pds[i].Close(); err != nil {
				p.t.Error(err)
			}
		}
		if p.buf != nil {
			_ = p.buf.Close()
		}
	})
}

// post posts on queue pair q.
func (p *puppet) post(q int, wrs ...ibverbs.SendWR) {
	p.t.Helper()
	if _, err := p.bundle.QPs[q].PostSend(wrs...); err != nil {
		p.t.Fatal(err)
	}
}

// sge is memory of the puppet over the device of queue pair q.
func (p *puppet) sge(q, off, n int) []ibverbs.SGE {
	return []ibverbs.SGE{p.mrs[q%len(p.nic)].SGE(off, n)}
}

// poll is all completions that are there, by rail.
func (p *puppet) poll(rail int) []ibverbs.WC {
	p.t.Helper()
	var all []ibverbs.WC
	var wcs [16]ibverbs.WC
	for {
		n, err := p.cqs[rail].Poll(wcs[:])
		if err != nil {
			p.t.Fatal(err)
		}
		if n == 0 {
			return all
		}
		all = append(all, wcs[:n]...)
	}
}

// withReceiver connects our sender to a puppet that receives.
func withReceiver(t testing.TB, f *fabric, c Config, twist func(*socketboot.Metadata)) (*SendComm, *puppet) {
	t.Helper()
	tr := transport(t, f.send, c)
	p := &puppet{t: t, nic: f.recv, twist: twist}
	t.Cleanup(p.close)
	n := localNet()
	n.Layout = c.Net.Layout
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	l, err := n.Serve(ctx, func(netip.AddrPort) socketboot.AcceptorLocal { return p })
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	s, err := tr.Connect(ctx, 0, l.Handle())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	if p.conn, err = l.Accept(ctx); err != nil {
		t.Fatal(err)
	}
	return s, p
}

// withSender connects a puppet that sends over nqps queue pairs to our receiver.
func withSender(t testing.TB, f *fabric, c Config, nqps int, twist func(*socketboot.Metadata)) (*RecvComm, *puppet) {
	t.Helper()
	tr := transport(t, f.recv, c)
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	l, err := tr.Listen(ctx, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	p := &puppet{t: t, nic: f.send, nqps: nqps, twist: twist}
	t.Cleanup(p.close)
	n := localNet()
	n.Layout = c.Net.Layout
	if p.conn, err = n.Connect(ctx, l.Handle(), p); err != nil {
		t.Fatal(err)
	}
	r, err := l.Accept(ctx)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	})
	return r, p
}
