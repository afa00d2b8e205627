package memdriver

import "github.com/purerdma/purerdma/ibverbs/driver"

// establish notes the first message that comes.
func (p *qp) establish() {
	if !p.established {
		p.established = true
		if p.attr.State == driver.RTR {
			p.raise(driver.EventCommEst)
		}
	}
}

// allows reports whether the QP grants the operation at all.
func (p *qp) allows(op driver.Opcode) bool {
	switch {
	case isSend(op):
		return true
	case op == driver.OpRead:
		return p.attr.Access&driver.RemoteRead != 0 && p.attr.MaxDestRdAtomic > 0
	case isAtomic(op):
		return p.attr.Access&driver.RemoteAtomic != 0 && p.attr.MaxDestRdAtomic > 0
	}
	return p.attr.Access&driver.RemoteWrite != 0
}

// respond is the peer's side of request e of q: it moves the data, completes the
// receive, and says how the request ends at q. After any status but Success p is
// in the error state.
func (p *qp) respond(q *qp, e *sendEntry, local [][]byte) driver.Status {
	n := size(local)
	if !p.allows(e.op) || !p.sameMTU(q, n) || isAtomic(e.op) && e.remote.Addr%8 != 0 {
		return p.refuse(driver.EventQPReqErr, driver.RemInvReqErr)
	}
	var status driver.Status
	if isSend(e.op) {
		status = p.receive(e, local, n)
	} else {
		status = p.access(q, e, local, n)
	}
	if status == driver.Success {
		packets := uint32(max(1, (n+q.attr.PathMTU.Bytes()-1)/q.attr.PathMTU.Bytes()))
		q.attr.SQPSN = (q.attr.SQPSN + packets) & 0xffffff
		p.attr.RQPSN = (p.attr.RQPSN + packets) & 0xffffff
	}
	return status
}

// sameMTU reports whether a message of n bytes is cut into packets as p expects.
func (p *qp) sameMTU(q *qp, n int) bool {
	return p.attr.PathMTU == q.attr.PathMTU || n <= min(p.attr.PathMTU, q.attr.PathMTU).Bytes()
}

// refuse ends the connection at p.
func (p *qp) refuse(event driver.EventType, s driver.Status) driver.Status {
	p.raise(event)
	p.fail()
	return s
}

// receive places a message into the next receive.
func (p *qp) receive(e *sendEntry, local [][]byte, n int) driver.Status {
	r := &p.rq[p.rqDone%uint64(len(p.rq))]
	if total(r.sgl) < uint64(n) {
		p.completeRecv(driver.WC{Status: driver.LocLenErr}, false)
		return p.refuse(driver.EventQPReqErr, driver.RemInvReqErr)
	}
	into, ok := p.scatter(r, n)
	if !ok {
		p.completeRecv(driver.WC{Status: driver.LocProtErr}, false)
		p.fail()
		return driver.RemOpErr
	}
	move(into, local)
	p.received(e, driver.WCRecv, n)
	return driver.Success
}

// scatter is the memory of the receive that n bytes go to.
func (p *qp) scatter(r *recvEntry, n int) ([][]byte, bool) {
	list := p.dev().d.dst[:0]
	defer func() { p.dev().d.dst = list }()
	for _, s := range r.sgl {
		size := min(uint32(n), s.Length)
		if size == 0 {
			continue
		}
		b, ok := p.dev().lkeys[s.LKey].bytes(p.pd, s.Addr, size, driver.LocalWrite)
		if !ok {
			return nil, false
		}
		list = append(list, b)
		n -= int(size)
	}
	return list, true
}

func (p *qp) received(e *sendEntry, op driver.WCOpcode, n int) {
	wc := driver.WC{Op: op, ByteLen: uint32(n)}
	if hasImm(e.op) {
		wc.Imm, wc.Flags = e.imm, driver.WCWithImm
	}
	p.completeRecv(wc, e.flags&driver.Solicited != 0)
}

// access does the operations on memory that the request names by a remote key.
// A message of no bytes needs no key.
func (p *qp) access(q *qp, e *sendEntry, local [][]byte, n int) driver.Status {
	var remote []byte
	if n > 0 {
		var ok bool
		remote, ok = p.dev().rkeys[e.remote.RKey].bytes(p.pd, e.remote.Addr, uint32(n), right(e.op))
		if !ok {
			return p.refuse(driver.EventQPAccessErr, driver.RemAccessErr)
		}
	}
	d := p.dev().d
	switch {
	case isAtomic(e.op):
		d.old = atomically(remote, e.op, e.compare, e.add)
		d.dst = append(d.dst[:0], d.old[:])
		move(local, d.dst)
	case e.op == driver.OpRead:
		d.dst = append(d.dst[:0], remote)
		move(local, d.dst)
	default:
		keep := q.dev().faults.tail(q, e, local, n)
		d.dst = append(d.dst[:0], remote[:keep])
		move(d.dst, local)
	}
	if e.op == driver.OpWriteWithImm {
		p.received(e, driver.WCRecvWriteWithImm, n)
	}
	return driver.Success
}

func right(op driver.Opcode) driver.Access {
	switch {
	case op == driver.OpRead:
		return driver.RemoteRead
	case isAtomic(op):
		return driver.RemoteAtomic
	}
	return driver.RemoteWrite
}

// move fills into from the front with what is in from, which has no more bytes
// than into unless the rest is to be left out.
func move(into, from [][]byte) {
	var src []byte
	for _, dst := range into {
		for len(dst) > 0 {
			if len(src) == 0 {
				if len(from) == 0 {
					return
				}
				src, from = from[0], from[1:]
			}
			n := min(len(dst), len(src))
			place(dst[:n], src[:n])
			dst, src = dst[n:], src[n:]
		}
	}
}
