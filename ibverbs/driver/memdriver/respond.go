package memdriver

import "github.com/purerdma/purerdma/ibverbs/driver"

// establish notes the first message that comes.
func (q *qp) establish() {
	if !q.established {
		q.established = true
		if q.attr.State == driver.StateRTR {
			q.raise(driver.EventCommEst)
		}
	}
}

// allows reports whether the QP grants the operation at all.
func (q *qp) allows(op driver.Opcode) bool {
	switch {
	case isSend(op):
		return true
	case op == driver.OpRead:
		return q.attr.Access&driver.RemoteRead != 0 && q.attr.MaxDestRdAtomic > 0
	case isAtomic(op):
		return q.attr.Access&driver.RemoteAtomic != 0 && q.attr.MaxDestRdAtomic > 0
	}
	return q.attr.Access&driver.RemoteWrite != 0
}

// respond is the peer's side of request e of from: it moves the data, completes the
// receive, and says how the request ends at from. After any status but Success q is
// in the error state.
func (q *qp) respond(from *qp, e *sendEntry, local [][]byte) driver.Status {
	n := size(local)
	if !q.allows(e.op) || !q.sameMTU(from, n) || isAtomic(e.op) && e.remote.Addr%8 != 0 {
		return q.refuse(driver.EventQPReqErr, driver.RemInvReqErr)
	}
	var status driver.Status
	if isSend(e.op) {
		status = q.receive(e, local, n)
	} else {
		status = q.access(from, e, local, n)
	}
	if status == driver.Success {
		packets := uint32(max(1, (n+from.attr.PathMTU.Bytes()-1)/from.attr.PathMTU.Bytes()))
		from.attr.SQPSN = (from.attr.SQPSN + packets) & 0xffffff
		q.attr.RQPSN = (q.attr.RQPSN + packets) & 0xffffff
	}
	return status
}

// sameMTU reports whether a message of n bytes is cut into packets as q expects.
func (q *qp) sameMTU(from *qp, n int) bool {
	return q.attr.PathMTU == from.attr.PathMTU || n <= min(q.attr.PathMTU, from.attr.PathMTU).Bytes()
}

// refuse ends the connection at q.
func (q *qp) refuse(event driver.EventType, s driver.Status) driver.Status {
	q.raise(event)
	q.fail()
	return s
}

// receive places a message into the next receive.
func (q *qp) receive(e *sendEntry, local [][]byte, n int) driver.Status {
	r := &q.rq[q.rqDone%uint64(len(q.rq))]
	if total(r.sgl) < uint64(n) {
		q.completeRecv(driver.WC{Status: driver.LocLenErr}, false)
		return q.refuse(driver.EventQPReqErr, driver.RemInvReqErr)
	}
	into, ok := q.scatter(r, n)
	if !ok {
		q.completeRecv(driver.WC{Status: driver.LocProtErr}, false)
		q.fail()
		return driver.RemOpErr
	}
	move(into, local)
	q.received(e, driver.WCRecv, n)
	return driver.Success
}

// scatter is the memory of the receive that n bytes go to.
func (q *qp) scatter(r *recvEntry, n int) ([][]byte, bool) {
	list := q.dev().d.dst[:0]
	defer func() { q.dev().d.dst = list }()
	for _, s := range r.sgl {
		size := min(uint32(n), s.Length)
		if size == 0 {
			continue
		}
		b, ok := q.dev().lkeys[s.LKey].bytes(q.pd, s.Addr, size, driver.LocalWrite)
		if !ok {
			return nil, false
		}
		list = append(list, b)
		n -= int(size)
	}
	return list, true
}

func (q *qp) received(e *sendEntry, op driver.WCOpcode, n int) {
	wc := driver.WC{Op: op, ByteLen: uint32(n)}
	if hasImm(e.op) {
		wc.Imm, wc.Flags = e.imm, driver.WCWithImm
	}
	q.completeRecv(wc, e.flags&driver.Solicited != 0)
}

// access does the operations on memory that the request names by a remote key.
// A message of no bytes needs no key.
func (q *qp) access(from *qp, e *sendEntry, local [][]byte, n int) driver.Status {
	var remote []byte
	if n > 0 {
		var ok bool
		remote, ok = q.dev().rkeys[e.remote.RKey].bytes(q.pd, e.remote.Addr, uint32(n), right(e.op))
		if !ok {
			return q.refuse(driver.EventQPAccessErr, driver.RemAccessErr)
		}
	}
	d := q.dev().d
	switch {
	case isAtomic(e.op):
		d.old = atomically(remote, e.op, e.compare, e.add)
		d.dst = append(d.dst[:0], d.old[:])
		move(local, d.dst)
	case e.op == driver.OpRead:
		d.dst = append(d.dst[:0], remote)
		move(local, d.dst)
	default:
		keep := from.dev().faults.tail(from, e, local, n)
		d.dst = append(d.dst[:0], remote[:keep])
		move(d.dst, local)
	}
	if e.op == driver.OpWriteWithImm {
		q.received(e, driver.WCRecvWriteWithImm, n)
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
