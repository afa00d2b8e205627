package softroce

import (
	"context"
	"net"
	"net/netip"
	"slices"
	"testing"

	"github.com/purerdma/purerdma/ibverbs/driver"
	"github.com/purerdma/purerdma/ibverbs/softroce/internal/link"
	"github.com/purerdma/purerdma/ibverbs/softroce/internal/wire"
	"github.com/purerdma/purerdma/internal/offheap"
)

// fedLink is a link to nowhere that takes packets from a test.
type fedLink struct {
	addr   netip.AddrPort
	in     chan link.Datagrams
	idle   chan struct{}
	closed chan struct{}
	busy   bool
}

func newFedLink(addr netip.Addr) *fedLink {
	return &fedLink{addr: netip.AddrPortFrom(addr, wire.Port), in: make(chan link.Datagrams), idle: make(chan struct{}), closed: make(chan struct{})}
}

// feed returns when the device is through with the packet.
func (l *fedLink) feed(d link.Datagrams) {
	l.in <- d
	<-l.idle
}

func (l *fedLink) Recv(_ context.Context, batch []link.Datagrams) (int, error) {
	if l.busy {
		l.busy = false
		l.idle <- struct{}{}
	}
	select {
	case batch[0] = <-l.in:
		l.busy = true
		return 1, nil
	case <-l.closed:
		return 0, net.ErrClosed
	}
}

func (l *fedLink) Open(netip.Addr) (Link, error)         { return l, nil }
func (l *fedLink) LocalAddr() netip.AddrPort             { return l.addr }
func (l *fedLink) Source(uint32) netip.AddrPort          { return l.addr }
func (l *fedLink) MTU() int                              { return 1500 }
func (l *fedLink) RecvBuffer() int                       { return 1 << 20 }
func (l *fedLink) ShowsID() bool                         { return true }
func (l *fedLink) Send(b []link.Datagrams) (int, error)  { return len(b), nil }
func (l *fedLink) TryRecv([]link.Datagrams) (int, error) { return 0, nil }
func (l *fedLink) Stats() link.Stats                     { return link.Stats{} }
func (l *fedLink) Close() error                          { close(l.closed); return nil }

// target is an end whose peer is whoever feeds packets. Its memory is registered
// but for a page before it and one behind.
type target struct {
	link *fedLink
	peer netip.AddrPort
	end  *end
	all  driver.Span
}

const guard = 4096

func newTarget(t testing.TB) *target {
	addr, peer := netip.MustParseAddr("fd00::1"), netip.MustParseAddr("fd00::2")
	f := &target{link: newFedLink(addr), peer: netip.AddrPortFrom(peer, wire.Port)}
	devices, _ := New(Config{Addrs: []netip.Addr{addr}, Network: f.link}).Devices()
	r := &rig{t: t, cfg: rigConfig{mtu: driver.MTU256, timeout: 0, retryCnt: 7, rnrRetry: 7, rdAtomic: 4, access: everything, depth: 16}}
	e := &end{r: r, addr: addr}
	f.end = e
	var err error
	e.ctx, err = devices[0].Open()
	r.must(err)
	e.pd, err = e.ctx.AllocPD()
	r.must(err)
	e.cq, err = e.ctx.CreateCQ(driver.CQConfig{Depth: 256})
	r.must(err)
	f.all, err = offheap.Map(16<<10+2*guard, offheap.Options{})
	r.must(err)
	e.mem, err = f.all.Slice(guard, 16<<10)
	r.must(err)
	e.mr, err = e.pd.RegMR(e.mem, e.mem.Addr(), everything)
	r.must(err)
	for i := range f.all.Bytes() {
		f.all.Bytes()[i] = 0xa5
	}
	t.Cleanup(func() {
		r.must(e.mr.Close())
		r.must(e.cq.Close())
		r.must(e.pd.Close())
		r.must(e.ctx.Close())
		_ = f.all.Release()
	})
	return f
}

// Flags of a packet in a script: what of it is made right, so that the search gets
// behind the first checks.
const (
	rightQPN = 1 << iota
	rightPSN // near the next of the responder, or of the requester for answers
	rightMemory
	rightSeal
	rightPeer
	rightPad
	rightSize // a whole packet of the path MTU
	rightPKey
)

// run feeds the packets of a script: flags, distance of the number, length, bytes.
func (f *target) run(q *qp, script []byte) {
	for len(script) >= 3 {
		flags, near, n := script[0], int8(script[1]), int(script[2])
		n = min(n, len(script)-3)
		pkt := f.packet(q, flags, near, script[3:3+n])
		script = script[3+n:]
		from := f.peer
		if flags&rightPeer == 0 {
			from = netip.AddrPortFrom(from.Addr().Next(), from.Port())
		}
		if flags&rightSeal != 0 && len(pkt) >= wire.BTHSize+wire.ICRCSize {
			wire.NewPath(from, f.link.addr).Seal(pkt, 0)
		}
		f.link.feed(link.Datagrams{Addr: from, Data: pkt})
	}
}

func (f *target) packet(q *qp, flags byte, near int8, body []byte) []byte {
	pkt := slices.Concat(body, make([]byte, wire.ICRCSize))
	if len(pkt) < wire.BTHSize+wire.ICRCSize {
		return pkt
	}
	h := wire.BTH(pkt)
	op := h.Opcode()
	if flags&rightSize != 0 && op.HasData() {
		pkt = slices.Concat(pkt, make([]byte, 4096))[:wire.Size(op, q.mtu)]
		h = wire.BTH(pkt)
	}
	if flags&rightPad != 0 {
		pkt[1] &= 0xc0
		for len(pkt)%4 != 0 {
			pkt = append(pkt, 0)
			pkt[1] += 0x10
		}
		h = wire.BTH(pkt)
	}
	if flags&rightQPN != 0 {
		pkt[5], pkt[6], pkt[7] = byte(q.num>>16), byte(q.num>>8), byte(q.num)
	}
	if flags&rightPKey != 0 {
		pkt[2], pkt[3] = 0xff, 0xff
	}
	q.mu.Lock()
	next := q.resp.psn
	if !op.IsRequest() {
		next = q.req.una
	}
	q.mu.Unlock()
	if flags&rightPSN != 0 {
		h.SetPSN(next.Add(uint32(near)))
	}
	if p, err := wire.Parse(pkt); err == nil && flags&rightMemory != 0 {
		off := func(va uint64) uint64 { return f.end.mem.Addr() + va%(20<<10) - 1024 }
		switch {
		case p.RETH() != nil:
			p.RETH().Put(off(p.RETH().VA()), f.end.key(), p.RETH().Length()%8192)
		case p.AtomicETH() != nil:
			a := p.AtomicETH()
			a.Put(off(a.VA())&^7, f.end.key(), a.SwapOrAdd(), a.Compare())
		case p.DETH() != nil:
			p.DETH().Put(rigQKey, p.DETH().SrcQPN())
		}
	}
	return pkt
}

// try runs a script against a queue pair with receives and, for answers, requests
// under way. Nothing outside of the registration changes, and each request and
// receive completes once, in order.
func (f *target) try(t *testing.T, typ driver.QPType, script []byte, sends []driver.SendWR) {
	e := f.end
	e.r.t, e.r.cfg.typ = t, typ
	q := e.newQP(e.cq)
	peer := &end{addr: f.peer.Addr()}
	e.r.must(toRTR(e, q, peer, 0x777777))
	e.r.must(toRTS(e, q))
	const receives = 6
	for i := range receives {
		n := 300 * (receives - 1 - i) // the last are empty
		_, err := q.PostRecv([]driver.RecvWR{{ID: 100 + uint64(i), SGL: []driver.SGE{e.sge(0, n), e.sge(8192, n)}}})
		e.r.must(err)
	}
	posted, err := q.PostSend(sends)
	if err != nil {
		t.Fatalf("%d posted, %v", posted, err)
	}
	f.run(q, script)
	e.r.must(q.Modify(&driver.QPAttr{State: driver.StateErr}, driver.QPStateMask))
	sent, received := uint64(0), uint64(100)
	for _, wc := range e.poll() {
		next := &sent
		if wc.ID >= 100 {
			next = &received
		}
		if wc.ID != *next {
			t.Fatalf("%+v completes where %d is next", wc, *next)
		}
		*next++
	}
	if sent != uint64(len(sends)) || received != 100+receives {
		t.Fatalf("%d of %d requests and %d of %d receives completed", sent, len(sends), received-100, receives)
	}
	e.r.must(q.Close())
	b := f.all.Bytes()
	for i, v := range b[:guard] {
		if v != 0xa5 || b[len(b)-1-i] != 0xa5 {
			t.Fatal("memory beside the registration changed")
		}
	}
}

// requests are one of each kind, all signaled.
func (f *target) requests() []driver.SendWR {
	e := f.end
	remote := driver.Remote{Addr: 1 << 40, RKey: 9}
	list := []driver.SendWR{
		{Op: driver.OpWrite, SGL: []driver.SGE{e.sge(0, 773)}, Remote: remote},
		{Op: driver.OpRead, SGL: []driver.SGE{e.sge(0, 100), e.sge(16284, 100), e.sge(4096, 400)}, Remote: remote},
		{Op: driver.OpFetchAdd, SGL: []driver.SGE{e.sge(16<<10-8, 8)}, Remote: remote, CompareAdd: 1},
		{Op: driver.OpSend, SGL: []driver.SGE{e.sge(0, 1)}},
		{Op: driver.OpRead, SGL: []driver.SGE{e.sge(16128, 256)}, Remote: remote},
		{Op: driver.OpCmpSwap, SGL: []driver.SGE{e.sge(0, 8)}, Remote: remote, CompareAdd: 1, Swap: 2},
		{Op: driver.OpWriteWithImm, Remote: remote, Imm: 5},
	}
	for i := range list {
		list[i].ID, list[i].Flags = uint64(i), driver.Signaled
	}
	return list
}

// scripted is a packet of a script.
func scripted(flags byte, near int8, op wire.Opcode, payload int, fill func(p wire.Packet)) []byte {
	p := wire.Make(make([]byte, 8192), op, payload)
	p.BTH().Put(op, wire.AckReq, defaultPKey, 0, 0)
	if fill != nil {
		fill(p)
	}
	body := p.Bytes()[:len(p.Bytes())-wire.ICRCSize]
	n := min(len(body), 255)
	return append([]byte{flags, byte(near), byte(n)}, body[:n]...)
}

func ofKind(b byte) driver.QPType { return []driver.QPType{driver.RC, driver.UC, driver.UD}[b%3] }

// seeds are scripts of right packets and of each check's opposite.
func seeds(f *testing.F, ops []wire.Opcode) {
	const right = 0xff &^ rightSize
	memory := func(va uint64, n uint32) func(wire.Packet) {
		return func(p wire.Packet) {
			switch {
			case p.RETH() != nil:
				p.RETH().Put(va, 1, n)
			case p.AtomicETH() != nil:
				p.AtomicETH().Put(va, 1, 2, 3)
			case p.AETH() != nil:
				p.AETH().Put(wire.Syndrome(n), 1)
			}
		}
	}
	for _, op := range ops {
		kind := byte(op.Transport())
		if kind > 1 {
			kind = 2
		}
		for _, n := range []int{0, 1, 100} {
			if n == 0 || op.HasData() {
				f.Add(kind, slices.Concat(scripted(right, 0, op, n, memory(1024, uint32(n))), scripted(right, -1, op, n, memory(1024, uint32(n)))))
				f.Add(kind, scripted(right, 0, op, n, memory(1020, uint32(n))))     // before the memory
				f.Add(kind, scripted(right, 0, op, n, memory(17<<10, uint32(n+1)))) // behind it
			}
		}
		for bit := range 8 {
			f.Add(kind, scripted(right&^(1<<bit), 0, op, 0, memory(1024, 0)))
		}
		if (op + 1).Valid() && (op + 2).Valid() { // FIRST, MIDDLE, LAST among others
			f.Add(kind, slices.Concat(scripted(0xff, 0, op, 0, memory(1024, 600)), scripted(0xff, 0, op+1, 0, nil), scripted(right, 0, op+2, 88, nil)))
		}
		f.Add(kind, scripted(right, 9, op, 0, memory(1024, 0)))
		f.Add(kind, scripted(right, 0, op, 0, memory(^uint64(0), 1<<31)))
	}
	for s := range 256 {
		f.Add(byte(0), scripted(right, 0, wire.RCAck, 0, memory(0, uint32(s))))
	}
}

func opcodes(want func(wire.Opcode) bool) (ops []wire.Opcode) {
	for o := range 256 {
		if op := wire.Opcode(o); op.Valid() && want(op) {
			ops = append(ops, op)
		}
	}
	return ops
}

// FuzzResponder: whatever requests come gives no panic, touches no memory outside
// of a registration, and loses no receive.
func FuzzResponder(f *testing.F) {
	seeds(f, opcodes(wire.Opcode.IsRequest))
	at := newTarget(f)
	f.Fuzz(func(t *testing.T, kind byte, script []byte) { at.try(t, ofKind(kind), script, nil) })
}

// FuzzRequester: whatever answers come, to requests of each kind that are under
// way, gives no panic, touches no memory outside of a registration, and completes
// each request once and in order.
func FuzzRequester(f *testing.F) {
	seeds(f, opcodes(func(op wire.Opcode) bool { return !op.IsRequest() }))
	// The answers to all requests, and what is left of them without the first.
	ack := func(p wire.Packet) { p.AETH().Put(wire.SynAck, 1) }
	all := [][]byte{
		scripted(0xbf, 3, wire.RCAck, 0, ack),
		scripted(0xff, 0, wire.RCReadResponseFirst, 0, ack), scripted(0xff, 0, wire.RCReadResponseMiddle, 0, nil),
		scripted(0xbf, 0, wire.RCReadResponseLast, 88, ack), scripted(0xbf, 0, wire.RCAtomicAck, 0, ack),
		scripted(0xbf, 0, wire.RCAck, 0, ack), scripted(0xff, 0, wire.RCReadResponseOnly, 0, ack),
		scripted(0xbf, 0, wire.RCAtomicAck, 0, ack), scripted(0xbf, 0, wire.RCAck, 0, ack),
	}
	for i := range all {
		f.Add(byte(0), slices.Concat(all[:i+1]...))
		f.Add(byte(0), slices.Concat(slices.Concat(all[:i]...), slices.Concat(all[i+1:]...)))
	}
	at := newTarget(f)
	f.Fuzz(func(t *testing.T, _ byte, script []byte) { at.try(t, driver.RC, script, at.requests()) })
}
