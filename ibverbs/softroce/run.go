package softroce

import (
	"math"

	"github.com/purerdma/purerdma/ibverbs/driver"
	"github.com/purerdma/purerdma/ibverbs/softroce/internal/link"
	"github.com/purerdma/purerdma/ibverbs/softroce/internal/wire"
)

// The packets in the middle of a long message are alike, and nearly all there are.
// They are made, and those of a write taken, several at a time: their bytes are
// copied once, their ICRC is computed on the way, and what is looked up is looked up
// once.

// middles is how many packets of w from packet from on can be made as a run.
func (q *qp) middles(w *request, from uint32) int {
	if from == 0 || w.inline || q.req.probing || from+1 >= w.packets {
		return 0
	}
	switch w.op {
	case driver.OpSend, driver.OpSendWithImm, driver.OpSendWithInv, driver.OpWrite, driver.OpWriteWithImm:
		return int(w.packets - 1 - from)
	}
	return 0
}

// piece is the memory of a list from off on, up to the end of the entry that it lies
// in.
func piece(sgl []driver.SGE, off uint64) (lkey uint32, addr, n uint64) {
	for i := range sgl {
		s := &sgl[i]
		if off < uint64(s.Length) {
			return s.LKey, s.Addr + off, uint64(s.Length) - off
		}
		off -= uint64(s.Length)
	}
	return 0, 0, 0
}

// sendRun adds up to n packets of w, from the cursor on, and moves it. It reports
// how many went, 0 if they have to go one by one, and whether there is more room.
func (q *qp) sendRun(b *burst, w *request, n int) (sent int, more bool) {
	r := &q.req
	lkey, addr, left := piece(w.sgl, uint64(r.nextPacket)*uint64(q.mtu))
	n = min(n, int(left/uint64(q.mtu)))
	if n < 2 {
		return 0, true
	}
	op := opcodeOf(w.op, false, false)
	size := wire.BTHSize + q.mtu + wire.ICRCSize
	each := q.charge(q.mtu)
	if n = min(n, b.room(q, op, size), r.allowed(each)); n < 2 {
		return 0, true
	}
	if n = q.flow.take(q, each, n); n == 0 {
		return 0, false
	}
	m, mem := q.e.memory(q.pd, lkey, addr, uint64(n*q.mtu), 0)
	if m != nil {
		pkts, id := b.extend(q, op, size, n)
		var h [wire.BTHSize]byte
		wire.BTH(h[:]).Put(op, 0, defaultPKey, q.attr.DestQPN, 0)
		s := seal{run: q.path.Run(size, h[:]), psn: w.psn.Add(r.nextPacket), id: id, count: r.sinceAckReq}
		ok := putRun(pkts, size, mem, q.mtu, &s)
		m.end()
		if ok {
			b.finish(q, size)
			r.sinceAckReq = s.count
			r.inFlight += n * each
			r.nextPacket += uint32(n)
			if end := w.psn.Add(r.nextPacket); end.Sub(r.sent) > 0 {
				r.sent = end
			}
			return n, true
		}
		b.shrink(size, n)
	}
	q.flow.give(n * each)
	q.flow.wake()
	w.failed = driver.LocProtErr
	return 0, false
}

// allowed is how many packets of a cost the limits of the queue pair let fly.
func (r *requester) allowed(cost int) int {
	n := math.MaxInt
	for _, limit := range [...]int{r.limit, r.congestion.limit} {
		if limit > 0 {
			n = min(n, (limit-r.inFlight)/cost)
		}
	}
	return n
}

// takeRun takes the packets from segment k of d on that are the next ones in the
// middle of the write that is coming to the queue pair at hand. It returns how many
// those are, 0 if dispatch has to look at segment k.
//
// The bytes are in place before the ICRC is known. If it is wrong, the packet counts
// as lost, and what was written is written again: the write goes on there.
func (r *receiver) takeRun(d *link.Datagrams, path wire.Path, k int) int {
	q := r.qp
	if q == nil || q.closed || q.typ != driver.RC || r.e.ecn && d.TOS&ecnMask == ecnMarked || d.Seg != wire.BTHSize+q.mtu+wire.ICRCSize || q.resp.message != wire.Write ||
		!q.receives() || q.to.Addr() != d.Addr.Addr() {
		return 0
	}
	w := &q.resp.write
	pkts := d.Data[k*d.Seg:]
	limit := min(len(pkts)/d.Seg, int(w.left-1)/q.mtu) // the last packet of a write is none in the middle
	if limit < 2 {
		return 0
	}
	h := wire.BTH(pkts[:wire.BTHSize])
	if h.Opcode() != wire.RCWriteMiddle || h.Pad() != 0 || h.Version() != 0 || h.PKey()&0x7fff != defaultPKey&0x7fff || h.QPN() != r.qpn {
		return 0
	}
	run := path.Run(d.Seg, h)
	n, ack := 0, false
	for ; n < limit; n++ {
		h := wire.BTH(pkts[n*d.Seg:][:wire.BTHSize])
		if !run.Has(h) || h.PSN() != q.resp.psn.Add(uint32(n)) {
			break
		}
		ack = ack || h.AckReq()
	}
	if n < 2 || !q.grants(wire.RCWriteMiddle) {
		return 0
	}
	m, mem := q.remoteMemory(w.key, w.va, uint64(n*q.mtu), driver.RemoteWrite)
	if m == nil {
		return 0
	}
	id := uint16(k)
	if r.exact {
		id += d.ID
	}
	n, ok := getRun(mem, pkts[:n*d.Seg], d.Seg, q.mtu, &run, id, r.exact)
	m.end()
	if !ok {
		return 0
	}
	q.resp.accepted(n, n*q.mtu, ack)
	r.e.counters.received.Add(uint64(n))
	return n
}

// accepted notes packets in the middle of a write.
func (r *responder) accepted(packets, bytes int, ackReq bool) {
	r.silent = false
	r.replies.forgetNAK()
	if r.replies.unacked += packets; ackReq || r.replies.unacked >= ackAtLeast {
		r.replies.ack = true
	}
	r.psn = r.psn.Add(uint32(packets))
	r.got += uint32(bytes)
	r.write.va, r.write.left = r.write.va+uint64(bytes), r.write.left-uint32(bytes)
}
