package softroce

import (
	"github.com/purerdma/purerdma/ibverbs/driver"
	"github.com/purerdma/purerdma/ibverbs/softroce/internal/wire"
)

// The receiving side of UC. It answers nothing. What cannot be delivered whole and
// in order is thrown away, up to where the next message begins.

// oldUC is how far behind the expected packet number one may lie to be taken for
// late or doubled, and thrown away. The IBTA has no such window, since its fabrics
// do neither: there each first packet begins a message, which on UDP would deliver
// some twice. Numbers further back are those of a peer of which much was lost.
const oldUC = 1 << 15

// requestUC is a packet for the responder of an unreliable connection.
func (q *qp) requestUC(p *packet) {
	r, c := &q.resp, &q.e.counters
	if !q.receives() {
		c.wrongState.Add(1)
		return
	}
	q.comesAlive()
	d := p.psn.Sub(r.psn)
	if d < 0 && d >= -oldUC {
		c.duplicates.Add(1)
		return
	}
	if d != 0 {
		c.gaps.Add(1)
	}
	r.psn = p.psn.Add(1)
	switch {
	case p.op.Starts():
		if r.message != 0 { // its end was lost
			q.dropMessage()
		}
		r.dropping = false
	case d != 0 || r.message == 0:
		if !r.dropping {
			q.dropMessage()
		}
		r.dropping = !p.op.Ends()
		return
	}
	if !q.performUC(p) {
		q.dropMessage()
		r.dropping = !p.op.Ends()
	}
}

// dropMessage throws away the message that is coming. The receive that was taken
// for it stays for the next.
func (q *qp) dropMessage() {
	q.e.counters.dropped.Add(1)
	q.resp.message = 0
}

// performUC does what the packet asks for, or reports that it cannot be done.
func (q *qp) performUC(p *packet) bool {
	if q.checkSequence(p) != accepted {
		return false
	}
	if p.op.Operation() == wire.Write {
		return q.performWrite(p) == accepted
	}
	r := &q.resp
	if p.op.Starts() {
		if !q.holdReceive() {
			return false
		}
		r.message, r.got = wire.Send, 0
	}
	if !q.deliver(p, r.got) {
		return q.attr.State == driver.StateErr // then there is nothing left to drop
	}
	r.got += uint32(len(p.payload))
	if p.op.Ends() {
		q.received(p, driver.WCRecv)
	}
	return true
}

// receives says whether the state lets packets in. A send queue that failed does not
// hinder them.
func (q *qp) receives() bool {
	switch q.attr.State {
	case driver.StateRTR, driver.StateRTS, driver.StateSQD, driver.StateSQE:
		return true
	}
	return false
}

// comesAlive raises the event of the first packet.
func (q *qp) comesAlive() {
	r := &q.resp
	if r.established {
		return
	}
	r.established = true
	if q.attr.State == driver.StateRTR {
		q.raise(driver.EventCommEst)
	}
}

// holdReceive is takeReceive unless one is at hand from a message that was dropped.
func (q *qp) holdReceive() bool { return q.resp.hasRecv || q.takeReceive() }

// deliver stores the payload into the receive at hand, from off on. It reports
// false if that is too small, which leaves it as it was, or if its memory is not
// there, which ends the queue pair.
func (q *qp) deliver(p *packet, off uint32) bool {
	r := &q.resp
	switch {
	case uint64(off)+uint64(len(p.payload)) > r.recvTotal:
		return false
	case !q.scatterRecv(off, p.payload):
		q.completeRecv(driver.WC{Status: driver.LocProtErr}, false)
		q.fail()
		return false
	}
	return true
}
