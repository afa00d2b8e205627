package softroce

import (
	"github.com/purerdma/purerdma/ibverbs/driver"
)

// controlledQKey is the bit of a Q_Key that a program may not send: in a request it
// stands for the queue pair's own (IBTA 10.2.5).
const controlledQKey = 1 << 31

// keyFor is the Q_Key that a datagram carries.
func (q *qp) keyFor(asked uint32) uint32 {
	if asked&controlledQKey != 0 {
		return q.attr.QKey
	}
	return asked
}

// datagram is a packet for a UD queue pair. What finds no receive, or too short a
// one, is thrown away; that receive stays for the next.
func (q *qp) datagram(p *packet) {
	r, c := &q.resp, &q.e.counters
	switch h := p.DETH(); {
	case !q.receives():
		c.wrongState.Add(1)
		return
	case h.QKey() != q.attr.QKey:
		c.wrongQKey.Add(1)
		return
	case len(p.payload) > q.mtu:
		c.malformed.Add(1)
		return
	case !q.holdReceive(), r.recvTotal < uint64(grhSize+len(p.payload)):
		c.dropped.Add(1)
		return
	}
	grh := q.e.grh(p)
	if !q.scatterRecv(0, grh[:]) {
		q.completeRecv(driver.WC{Status: driver.LocProtErr}, false)
		q.fail()
		return
	}
	if !q.deliver(p, grhSize) {
		return
	}
	wc := driver.WC{Op: driver.WCRecv, ByteLen: uint32(grhSize + len(p.payload)), SrcQP: p.DETH().SrcQPN(), Flags: driver.WCGRH}
	if p.op.HasImm() {
		wc.Imm = p.ImmDt().Imm()
		wc.Flags |= driver.WCWithImm
	}
	q.completeRecv(wc, p.BTH().Solicited())
}
