package memdriver

import "github.com/purerdma/purerdma/ibverbs/driver"

// run executes requests in order until one stalls.
func (q *qp) run() {
	for q.attr.State == driver.StateRTS && q.sqDone < q.sqPosted && !q.dev().faults.held {
		if !q.step() {
			return
		}
	}
}

// step executes the first request that is not done. It returns false if that
// must wait.
func (q *qp) step() bool {
	e := &q.sq[q.sqDone%uint64(len(q.sq))]
	if !q.due(e) {
		return false
	}
	if s, vendor, ok := q.dev().faults.nextStatus(); ok {
		q.end(s, vendor)
		return true
	}
	local, ok := q.local(e)
	switch {
	case !ok:
		q.end(driver.LocProtErr, 0)
		return true
	case isRead(e.op) && q.attr.MaxRdAtomic == 0:
		q.end(driver.LocQPOpErr, 0)
		return true
	case isAtomic(e.op) && size(local) != 8:
		q.end(driver.LocLenErr, 0)
		return true
	}
	peer := q.peer()
	if peer == nil {
		q.wait(unreachable, q.retryTime())
		return false
	}
	q.dev().faults.placeTails(q)
	peer.establish()
	if peer.allows(e.op) && needsRecv(e.op) && peer.rqDone == peer.rqPosted {
		if q.attr.RNRRetry == 0 {
			q.end(driver.RNRRetryExcErr, 0)
			return true
		}
		q.wait(notReady, q.rnrTime(peer))
		return false
	}
	q.unstall()
	q.dev().d.observe(q, e, local)
	if s := peer.respond(q, e, local); s != driver.Success {
		q.end(s, 0)
		return true
	}
	q.completeSend(driver.Success, 0, readLength(e.op, local))
	return true
}

// due reports whether the delay of the request is over.
func (q *qp) due(e *sendEntry) bool {
	delay := q.dev().d.cfg.Delay
	if delay == nil || e.delayed {
		return true
	}
	if q.stall == delayed {
		return false
	}
	if t := delay(); t > 0 {
		q.wait(delayed, t)
		return false
	}
	e.delayed = true
	return true
}

// end completes the first request in error.
func (q *qp) end(s driver.Status, vendor uint32) {
	q.completeSend(s, vendor, 0)
	q.fail()
}

// local is the memory that the request sends from or reads into, or false if
// a key does not cover it.
func (q *qp) local(e *sendEntry) ([][]byte, bool) {
	list := q.dev().d.src[:0]
	defer func() { q.dev().d.src = list }()
	if e.inline {
		list = append(list, e.data)
		return list, true
	}
	var need driver.Access
	if isRead(e.op) {
		need = driver.LocalWrite
	}
	for _, s := range e.sgl {
		if s.Length == 0 {
			continue
		}
		b, ok := q.dev().lkeys[s.LKey].bytes(q.pd, s.Addr, s.Length, need)
		if !ok {
			return nil, false
		}
		list = append(list, b)
	}
	return list, true
}

// peer is the QP that q is connected to, nil if no packet of q comes to it or no
// answer back.
func (q *qp) peer() *qp {
	from := q.dev().ports[q.attr.Port-1]
	if q.dev().faults.silent || from.attr.State != driver.PortActive {
		return nil
	}
	for _, dev := range q.dev().d.devices {
		p := dev.qps[q.attr.DestQPN]
		if p == nil || p.attr.State < driver.StateRTR || p.attr.State > driver.StateSQD || dev.faults.silent {
			continue
		}
		to := dev.ports[p.attr.Port-1]
		if to.attr.State == driver.PortActive && to.attr.LinkLayer == from.attr.LinkLayer &&
			p.attr.DestQPN == q.num && p.attr.RQPSN == q.attr.SQPSN && names(&q.attr.AH, to, &p.attr.AH) && names(&p.attr.AH, from, &q.attr.AH) {
			return p
		}
	}
	return nil
}

// names reports whether the address to leads to port p, at which the other end
// uses the source address of other.
func names(to *driver.AHAttr, p *port, other *driver.AHAttr) bool {
	if !to.IsGlobal {
		return to.DLID == p.attr.LID
	}
	g, ok := p.gid(other.SGIDIndex)
	return ok && g == to.DGID
}

func isRead(op driver.Opcode) bool { return op == driver.OpRead || isAtomic(op) }

func isAtomic(op driver.Opcode) bool { return op == driver.OpCmpSwap || op == driver.OpFetchAdd }

func isSend(op driver.Opcode) bool { return op == driver.OpSend || op == driver.OpSendWithImm }

func needsRecv(op driver.Opcode) bool { return isSend(op) || op == driver.OpWriteWithImm }

func hasImm(op driver.Opcode) bool { return op == driver.OpSendWithImm || op == driver.OpWriteWithImm }

// readLength is WC.ByteLen of a request that succeeded.
func readLength(op driver.Opcode, local [][]byte) uint32 {
	if isRead(op) {
		return uint32(size(local))
	}
	return 0
}

// size is the bytes of a list.
func size(list [][]byte) int {
	n := 0
	for _, b := range list {
		n += len(b)
	}
	return n
}
