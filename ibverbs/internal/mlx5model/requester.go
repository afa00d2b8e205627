package mlx5model

import (
	"time"

	"github.com/purerdma/purerdma/ibverbs/driver"
	"github.com/purerdma/purerdma/internal/mlx5prm"
)

// fail puts a queue pair into ERR, and ends what is in its queues.
func (q *qp) fail() {
	q.state = driver.StateErr
	q.since, q.after, q.tries = time.Time{}, time.Time{}, 0
	q.c.m.watched[q] = struct{}{} // what is posted later ends too
	q.flushSend()
	q.flushReceive()
	if q.srq != nil {
		q.c.event(q.async, eventLastWQE, q.user)
	}
}

// run executes what is in the send queue, as far as it goes, and says whether it did
// anything. A queue pair that has to wait is watched.
func (q *qp) run(now time.Time) (busy bool) {
	switch q.state {
	case driver.StateErr:
		busy = q.flushSend()
		return q.flushReceive() || busy
	case driver.StateSQE:
		return q.flushSend()
	case driver.StateRTS:
	default:
		return false
	}
	delete(q.c.m.watched, q)
	posted, ok := counter(q.c.mem, q.db+4)
	if !ok || q.sqN == 0 {
		return false
	}
	if n := posted - q.sqCI; uint32(n) > q.sqN {
		q.c.m.faultf("queue pair %#x: %d blocks are posted to a queue of %d", q.num, n, q.sqN)
	}
	for q.state == driver.StateRTS && q.sqCI != posted {
		if now.Before(q.after) || !q.step(posted-q.sqCI, now) {
			q.c.m.watched[q] = struct{}{}
			return busy
		}
		busy = true
	}
	return busy
}

// step executes an entry. It is false if it has to be tried again.
func (q *qp) step(posted uint16, now time.Time) bool {
	e, err := q.next(posted)
	if err != nil && q.c.mem.ended() {
		return false
	}
	if err != nil {
		q.c.m.faultf("queue pair %#x: entry %d: %v", q.num, e.index, err)
		q.end(e, mlx5prm.SyndromeLocalQPOpErr)
		return true
	}
	e.traced(q, q.sqCI+posted)
	if q.planted(e) {
		return true
	}
	a := q.perform(e)
	switch {
	case a.local != 0:
		q.end(e, a.local)
		return true
	case q.kind != driver.RC:
	case a.lost:
		return q.unanswered(e, now)
	case a.wait != 0:
		q.since = time.Time{}
		if q.tries++; q.attr.RNRRetry != endlessly && q.tries > int(q.attr.RNRRetry) {
			q.end(e, mlx5prm.SyndromeRNRRetryExcErr)
			return true
		}
		q.after = now.Add(a.wait)
		return false
	case a.refused != 0:
		q.end(e, a.refused)
		return true
	}
	q.since, q.after, q.tries = time.Time{}, time.Time{}, 0
	q.sqCI += e.blocks
	q.sent(e, a.bytes, a.data)
	return true
}

// endlessly is an RNRRetry without end.
const endlessly = 7

// unanswered waits for the peer, as long as the program wanted.
func (q *qp) unanswered(e *entry, now time.Time) bool {
	timeout := 4096 * time.Nanosecond << q.attr.Timeout
	if q.since.IsZero() {
		q.since = now
	}
	if q.attr.Timeout != 0 && now.Sub(q.since) >= timeout*time.Duration(q.attr.RetryCnt+1) {
		q.end(e, mlx5prm.SyndromeTransportRetryExcErr)
		return true
	}
	q.after = now.Add(min(timeout, time.Millisecond))
	return false
}

// end completes an entry in error. What is behind it is flushed: a reliable connection
// is in ERR then, others in SQE, where they go on receiving.
func (q *qp) end(e *entry, syndrome uint8) {
	q.sendFailed(e, syndrome)
	if q.kind == driver.RC {
		q.fail()
		return
	}
	q.state = driver.StateSQE
	q.flushSend()
}

// answer is how an entry ended: by itself, or by what the peer said.
type answer struct {
	local   uint8         // syndrome of a fault here
	lost    bool          // nobody answers
	wait    time.Duration // the peer has no receive
	refused uint8         // syndrome of a refusal
	bytes   uint64        // that a read or an atomic brought
	data    []byte        // of those, what goes with the completion
}

// perform executes an entry as far as this end is concerned.
func (q *qp) perform(e *entry) answer {
	op := e.Opcode()
	switch {
	case op == mlx5prm.OpNop:
		return answer{}
	case op == mlx5prm.OpUMR:
		return answer{local: q.change(e)}
	case e.length > maxMessage, q.kind == driver.UD && e.length > 128<<mtu4096:
		return answer{local: mlx5prm.SyndromeLocalLengthErr}
	case op == mlx5prm.OpRead || atomicOp(op):
		return q.fetch(e)
	}
	b, ok := q.gather(e.data, e.length)
	if !ok {
		return answer{local: mlx5prm.SyndromeLocalProtErr}
	}
	if q.kind == driver.UD {
		q.datagram(e, b)
		return answer{}
	}
	peer := q.peer()
	if peer == nil {
		return answer{lost: true}
	}
	a := peer.take(e, b)
	if (a.wait != 0 || a.refused != 0) && peer.c.mem.ended() {
		return answer{lost: true}
	}
	if a.wait == 0 {
		q.advance(peer, e.length)
	}
	return a
}

// fetch executes a read or an atomic: what the peer answers is scattered here.
func (q *qp) fetch(e *entry) answer {
	if q.attr.MaxRdAtomic == 0 {
		return answer{local: mlx5prm.SyndromeLocalQPOpErr}
	}
	peer := q.peer()
	if peer == nil {
		return answer{lost: true}
	}
	if !q.writable(e.data) {
		return answer{local: mlx5prm.SyndromeLocalProtErr}
	}
	b, a := peer.give(e)
	if a.refused != 0 && peer.c.mem.ended() {
		return answer{lost: true}
	}
	if a.refused != 0 {
		return a
	}
	q.advance(peer, uint64(len(b)))
	a.bytes = uint64(len(b))
	if e.FmCeSe&mlx5prm.CtrlCQUpdate != 0 && q.scatterSent && q.send.inline(len(b)) {
		a.data = b
		return a
	}
	if !q.scatter(e.data, b) {
		a.local = mlx5prm.SyndromeLocalProtErr
	}
	return a
}

// writable says whether a list may be scattered to.
func (q *qp) writable(pieces []piece) bool {
	for _, p := range pieces {
		if _, _, ok := q.c.m.reach(q.pd, p.key, p.addr, p.n, localWrite); !ok {
			return false
		}
	}
	return true
}

// peer is the queue pair that this one is connected to, nil if none answers.
func (q *qp) peer() *qp {
	p := q.c.m.qps[q.attr.DestQPNum]
	if p == nil || p.kind != q.kind || !p.receives() || p.attr.DestQPNum != q.num || !q.c.m.config.reaches(&q.attr.Dest) {
		return nil
	}
	if q.kind == driver.RC && q.attr.SQPSN != p.attr.RQPSN {
		return nil
	}
	return p
}

// advance counts the packets of a message.
func (q *qp) advance(peer *qp, length uint64) {
	mtu := uint64(128) << q.attr.PathMTU
	packets := uint32(max(1, (length+mtu-1)/mtu))
	q.attr.SQPSN = (q.attr.SQPSN + packets) & psnMask
	peer.attr.RQPSN = q.attr.SQPSN
}

const psnMask = 0xffffff
