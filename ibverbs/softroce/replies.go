package softroce

import (
	"github.com/purerdma/purerdma/ibverbs/driver"
	"github.com/purerdma/purerdma/ibverbs/softroce/internal/wire"
)

// replies is what the responder owes: answers to reads and atomic operations, in
// their order, then an ACK or NAK. An ACK stands for all before it, so it waits for
// the answers, and many packets share one.
type replies struct {
	saved []reply // those of the last MaxDestRdAtomic, for when they are asked again
	next  int     // of saved, the oldest
	jobs  []reply // not sent in full, from head on
	head  int

	ack       bool // asked for
	prompt    bool // a program was told of what it acknowledges, and may end at once
	unacked   int  // packets since the last ACK
	hold      hold
	nak       wire.Syndrome
	nakIsOwed bool
}

// reply is the answer to a read or an atomic operation.
type reply struct {
	psn      wire.PSN // of its first packet
	packets  uint32
	at       uint32 // packets sent
	va       uint64
	length   uint32
	key      uint32
	msn      uint32
	atomic   bool
	original uint64 // what was there before an atomic operation
}

const (
	// ackAtLeast is how many packets may come without an ACK going out, whatever the
	// sender asks for.
	ackAtLeast = 16
	// replyBurst is how many packets of an answer are sent before others get a turn.
	replyBurst = 64
	// leaveBurst is how many packets of answers a queue pair that is closed or stopped
	// sends before the ACK behind them. If there are more the peer does without.
	leaveBurst = 1024
)

// start makes room for limit answers, again in the memory of old.
func (s *replies) start(old replies, limit int) {
	*s = replies{saved: old.saved, jobs: old.jobs[:0], hold: hold{credit: holdStart}}
	if len(s.saved) != limit {
		s.saved = make([]reply, limit)
	}
	clear(s.saved)
}

// stop forgets what is owed.
func (s *replies) stop() {
	s.jobs, s.head = s.jobs[:0], 0
	s.nakIsOwed = false
	s.acked()
}

// acked notes that an answer went out which acknowledges all before it.
func (s *replies) acked() { s.ack, s.prompt, s.hold.on, s.unacked = false, false, false, 0 }

func (s *replies) busy() bool { return s.head < len(s.jobs) }

// acknowledge notes a packet that was executed.
func (s *replies) acknowledge(asked bool) {
	s.hold.proceeded()
	s.unacked++
	if asked || s.unacked >= ackAtLeast {
		s.ack = true
	}
}

// gap owes a NAK for the packet that is expected, unless that comes before the
// NAK goes out.
func (s *replies) gap() { s.nak, s.nakIsOwed = wire.SynSequence, true }

func (s *replies) notReady(code uint8) { s.nak, s.nakIsOwed = wire.RNRNak(code), true }

func (s *replies) forgetNAK() { s.nakIsOwed = false }

// save keeps a reply for a requester that asks again.
func (s *replies) save(r reply) {
	s.saved[s.next] = r
	s.next = (s.next + 1) % len(s.saved)
}

// find is the reply that packet psn is of.
func (s *replies) find(psn wire.PSN) *reply {
	for i := range s.saved {
		r := &s.saved[i]
		if d := psn.Sub(r.psn); r.packets > 0 && d >= 0 && uint32(d) < r.packets {
			return r
		}
	}
	return nil
}

// owe adds a job.
func (q *qp) owe(r reply) {
	s := &q.resp.replies
	if s.head > 0 && s.head == len(s.jobs) {
		s.jobs, s.head = s.jobs[:0], 0
	}
	s.jobs = append(s.jobs, r)
	if len(s.jobs)-s.head == 1 {
		q.serve(replyBurst)
	}
}

func (q *qp) performRead(p *packet) verdict {
	r := &q.resp
	h := p.RETH()
	n := h.Length()
	switch {
	case n > maxMessage, len(r.replies.jobs)-r.replies.head >= int(q.attr.MaxDestRdAtomic):
		return invalidRequest
	case n > 0 && !q.grantsMemory(h.RKey(), h.VA(), uint64(n), driver.RemoteRead):
		return accessDenied
	}
	r.msn++
	a := reply{psn: p.psn, packets: packetsOf(n, q.mtu), va: h.VA(), length: n, key: h.RKey(), msn: r.msn}
	r.replies.save(a)
	q.owe(a)
	return accepted
}

func (q *qp) performAtomic(p *packet) verdict {
	r := &q.resp
	h := p.AtomicETH()
	switch {
	case h.VA()%8 != 0, len(r.replies.jobs)-r.replies.head >= int(q.attr.MaxDestRdAtomic):
		return invalidRequest
	}
	m, mem := q.remoteMemory(h.RKey(), h.VA(), 8, driver.RemoteAtomic)
	if m == nil {
		return accessDenied
	}
	var old uint64
	var ok bool
	if p.op.Operation() == wire.CompareSwap {
		old, ok = operate(mem, true, h.Compare(), h.SwapOrAdd())
	} else {
		old, ok = operate(mem, false, h.SwapOrAdd(), 0)
	}
	m.end()
	if !ok {
		return operationFailed
	}
	r.msn++
	a := reply{psn: p.psn, packets: 1, msn: r.msn, atomic: true, original: old}
	r.replies.save(a)
	q.owe(a)
	return accepted
}

// duplicate answers a packet that was executed before. Nothing is done twice.
func (q *qp) duplicate(p *packet) {
	s := &q.resp.replies
	if isSendOrWrite(p.op) {
		s.ack = true
		s.hold.waited()
		return
	}
	r := s.find(p.psn)
	if r == nil {
		return
	}
	again := *r
	if r.atomic {
		if p.op.Operation() != wire.ReadRequest && s.goBack(p.psn) {
			q.owe(again)
		}
		return
	}
	if p.op.Operation() != wire.ReadRequest {
		return
	}
	// Any part that begins at a packet may be asked for.
	h := p.RETH()
	skipped := uint64(p.psn.Sub(r.psn)) * uint64(q.mtu)
	if h.RKey() != r.key || h.VA() != r.va+skipped || skipped+uint64(h.Length()) > uint64(r.length) {
		return
	}
	again.psn, again.va, again.length, again.packets = p.psn, h.VA(), h.Length(), packetsOf(h.Length(), q.mtu)
	if s.goBack(p.psn) {
		q.owe(again)
	}
}

// goBack makes room for an answer that is asked for again, from packet psn on. A
// requester that does so has lost that packet and takes nothing behind it, so what
// is owed from there on is not sent: it asks for it again. It reports false if the
// packet is still to be sent, or if there is no room.
func (s *replies) goBack(psn wire.PSN) bool {
	for i := s.head; i < len(s.jobs); i++ {
		r := &s.jobs[i]
		d := psn.Sub(r.psn)
		if d >= 0 && uint32(d) >= r.packets {
			continue
		}
		if d >= 0 && r.at <= uint32(d) {
			return false
		}
		s.jobs = s.jobs[:i]
		break
	}
	return len(s.jobs)-s.head < len(s.saved)
}

// serve sends up to budget packets of what is owed; the pump does the rest.
func (q *qp) serve(budget int) {
	s := &q.resp.replies
	var b burst
	for s.busy() && budget > 0 {
		r := &s.jobs[s.head]
		if v := q.replyPacket(&b, r); v != accepted {
			b.flush(q.e)
			q.resp.psn = r.psn.Add(r.at)
			s.stop()
			q.refuse(v)
			return
		}
		s.acked()
		budget--
		if r.at++; r.at == r.packets {
			s.head++
		}
	}
	b.flush(q.e)
	switch {
	case s.busy():
		q.e.pump.add(q)
	case q.resp.refusal != accepted:
		q.refuse(q.resp.refusal)
	}
}

// replyPacket adds the next packet of r.
func (q *qp) replyPacket(b *burst, r *reply) verdict {
	psn := r.psn.Add(r.at)
	if r.atomic {
		p := b.add(q, wire.RCAtomicAck, 0, psn, 0)
		p.AETH().Put(wire.SynAck, r.msn)
		p.AtomicAckETH().Put(r.original)
		return accepted
	}
	off := uint64(r.at) * uint64(q.mtu)
	n := min(uint64(q.mtu), uint64(r.length)-off)
	p := b.add(q, readResponse(r.at == 0, r.at+1 == r.packets), 0, psn, int(n))
	if p.Opcode().HasAETH() {
		p.AETH().Put(wire.SynAck, r.msn)
	}
	if n == 0 {
		return accepted
	}
	m, mem := q.remoteMemory(r.key, r.va+off, n, driver.RemoteRead)
	if m == nil {
		b.drop()
		return accessDenied
	}
	ok := getBytes(p.Payload(), mem)
	m.end()
	if !ok {
		b.drop()
		return operationFailed
	}
	return accepted
}

func readResponse(first, last bool) wire.Opcode {
	switch {
	case first && last:
		return wire.RCReadResponseOnly
	case first:
		return wire.RCReadResponseFirst
	case last:
		return wire.RCReadResponseLast
	}
	return wire.RCReadResponseMiddle
}

// settle sends what piled up while packets were taken: at the end of each batch,
// and by the pump. An ACK goes into acks, or is left for a request to go with it.
func (q *qp) settle(acks *burst, defers bool) {
	q.serve(replyBurst)
	if s := &q.resp.replies; !defers || s.nakIsOwed || s.prompt {
		q.addAck(acks)
	}
	if q.sq.next < q.sq.posted {
		q.transmit()
	}
}

// owesAck says that an ACK could go out.
func (s *replies) owesAck() bool { return s.ack && !s.nakIsOwed && !s.busy() }

// addAck adds the ACK or NAK that is owed, if that is so. NAKs and ACKs come behind
// the answers that are owed.
func (q *qp) addAck(b *burst) {
	switch s := &q.resp.replies; {
	case s.busy():
	case s.nakIsOwed:
		q.putAck(b, s.nak, q.resp.psn)
	case s.ack:
		q.putAck(b, wire.SynAck, q.resp.psn.Add(wire.PSNMask))
	}
}

// putAck adds an ACK or NAK for packet psn.
func (q *qp) putAck(b *burst, s wire.Syndrome, psn wire.PSN) {
	r := &q.resp.replies
	r.nakIsOwed = false
	r.acked()
	b.add(q, wire.RCAck, 0, psn, 0).AETH().Put(s, q.resp.msn)
}

// leave sends the ACK of what was received, before the queue pair is closed or
// stopped. A program that has seen the last message may do so at once, and the peer
// would send that message until its retries are used up.
func (q *qp) leave() {
	if !q.resp.replies.ack {
		return
	}
	q.serve(leaveBurst)
	if q.resp.replies.owesAck() {
		q.sendAck(wire.SynAck, q.resp.psn.Add(wire.PSNMask))
	}
}

// sendAck sends an ACK or NAK for packet psn.
func (q *qp) sendAck(s wire.Syndrome, psn wire.PSN) {
	var b burst
	q.putAck(&b, s, psn)
	b.flush(q.e)
}
