package transport

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/purerdma/purerdma/internal/cause"
)

// round is one Connect at this rank, from the plan to the vote. Its goroutine goes through all of it whatever happens, and so does
// that of every other rank: a rank that has failed sends failures in place of blobs. So each knows at every point what comes next, and
// nothing of a failed round is left over for the next. Only when the job itself is over does it stop in the middle.
type round struct {
	c      *Communicator
	user   context.Context // of the call; its end is a failure, and not the end of the round
	links  Links
	number uint32
	made   []*entry
	voted  atomic.Bool
	waits  atomic.Pointer[string] // what for, in words

	failure error // the first; nil while all is well
	told    bool  // it was told by another rank
	over    error // the job's: nothing can be sent or received any more
	meets   []meet
	said    map[meet]bool // the last message has gone out
	heard   map[meet]bool // that of the peer has come
}

// meet is a step in which this rank and a peer have something to connect.
type meet struct{ step, peer int }

func newRound(c *Communicator, user context.Context, l Links, number uint32) *round {
	r := &round{c: c, user: user, number: number, links: l, said: map[meet]bool{}, heard: map[meet]bool{}}
	r.waitsFor("all ranks to call Connect")
	return r
}

// waitsFor notes what the round will wait for, which a call that has waited long enough tells.
func (r *round) waitsFor(what string) { r.waits.Store(&what) }

func (r *round) run() error {
	err := r.prepare()
	if err != nil || r.over != nil {
		return r.undo(errors.Join(err, r.over))
	}
	r.loop()
	r.finish()
	if r.over != nil {
		return r.undo(r.over)
	}
	if err := r.vote(); err != nil {
		return r.undo(err)
	}
	if err := r.c.commit(r.made); err != nil {
		return r.undo(fmt.Errorf("transport: %w", err))
	}
	return nil
}

// undo closes what the round has made, last first.
func (r *round) undo(why error) error {
	for i := len(r.made) - 1; i >= 0; i-- {
		if err := r.made[i].connector.Close(); err != nil {
			r.c.log.Warn("transport: an end of a failed connect could not be closed", "end", r.made[i].end, "err", err)
		}
	}
	return why
}

// patience is how long after an error in talking to a peer word of what has happened to it may take.
const patience = 2 * time.Second

// jobOver notes an error of the job, which ends the round in the middle. Others may wait for this rank, so the job has to end for them
// too, if it has not.
func (r *round) jobOver(err error) {
	if r.over != nil {
		return
	}
	word := time.NewTimer(patience)
	defer word.Stop()
	select {
	case <-r.c.life.Done():
		err = ErrClosed
	case <-r.c.job.Done():
		err = r.c.job.Err()
	case <-word.C:
		r.c.job.Abort(err)
	}
	r.over = fmt.Errorf("transport: connect: %w", err)
}

// fail notes the first failure of this rank and tells its peers, who may be waiting for this rank in the middle of connecting.
func (r *round) fail(err error, told bool) {
	if r.failure != nil {
		return
	}
	r.failure, r.told = err, told
	m := message{round: r.number, failed: true, text: err.Error()}
	for _, at := range r.meets {
		r.say(at, m.append(nil))
	}
}

// say sends a peer the last message of a step, once.
func (r *round) say(at meet, b []byte) {
	if !r.said[at] {
		r.said[at] = true
		r.send(at.peer, r.lastTag(at.step), b)
	}
}

// check turns the end of the user's context into a failure; false if the round has failed.
func (r *round) check() bool {
	if r.failure == nil && r.user.Err() != nil {
		r.fail(cause.Of(r.user), false)
	}
	return r.failure == nil && r.over == nil
}

func (r *round) send(peer int, tag uint32, b []byte) {
	if r.over == nil {
		if err := r.c.job.Send(r.c.life, peer, tag, b); err != nil {
			r.jobOver(err)
		}
	}
}

func (r *round) recv(peer int, tag uint32) []byte {
	if r.over != nil {
		return nil
	}
	r.waitsFor(fmt.Sprintf("word from rank %d at %s", peer, r.c.job.Addr(peer)))
	b, err := r.c.job.Recv(r.c.life, peer, tag)
	if err != nil {
		r.jobOver(err)
	}
	return b
}

// tag is that of step i: NCCL's.
func (r *round) tag(i int) uint32 { return uint32(i)<<8 + uint32(r.links.Graph) }

// lastTag is that of the message after the last step.
func (r *round) lastTag(i int) uint32 { return r.tag(i) + 1<<7 }

// prepare compares the plans of all ranks. Its error is the same at all of them.
func (r *round) prepare() error {
	c := r.c
	mine := plan{round: r.number, conn: uint32(r.links.ConnIndex), graph: uint32(r.links.Graph)}
	bad := r.links.check(c.rank, c.size, c.channels)
	if bad == nil {
		r.links = c.without(r.links)
		mine.send, mine.recv = r.links.digests(c.rank)
	} else {
		mine.failed, mine.text = true, bad.Error()
	}
	all, err := c.job.AllGather(c.life, mine.append(nil))
	if err != nil {
		r.jobOver(err)
		return nil
	}
	plans := make([]plan, len(all))
	for rank, b := range all {
		p, err := decodePlan(b)
		switch {
		case err != nil:
		case p.round != r.number:
			err = fmt.Errorf("%w: it is in round %d, rank %d in %d", ErrProtocol, p.round, c.rank, r.number)
		case p.failed && rank == c.rank:
			err = bad
		case p.failed:
			err = fmt.Errorf("%w: %s", ErrPeerFailed, p.text)
		}
		if err != nil {
			return &RankError{rank, c.job.Addr(rank), err}
		}
		plans[rank] = p
	}
	var sum digest
	for rank, p := range plans {
		if first := plans[0]; p.conn != first.conn || p.graph != first.graph {
			return &RankError{rank, c.job.Addr(rank), fmt.Errorf("%w: connection index %d, graph %d there, %d, %d at rank 0", ErrConfig, p.conn,
				p.graph, first.conn, first.graph)}
		}
		sum.xor(&p.send)
		sum.xor(&p.recv)
	}
	if sum != (digest{}) {
		return r.compareMasks()
	}
	for i := 1; i < c.size; i++ { // at the end NCCL has the rank that is sent to first, unlike in the steps
		recvPeer, sendPeer := r.peersOf(i)
		if r.links.Send[sendPeer] != 0 || recvPeer == sendPeer && r.links.Recv[recvPeer] != 0 {
			r.meets = append(r.meets, meet{i, sendPeer})
		}
		if r.links.Recv[recvPeer] != 0 && recvPeer != sendPeer {
			r.meets = append(r.meets, meet{i, recvPeer})
		}
	}
	return nil
}

// peersOf are the ranks that this one receives from and sends to in step i.
func (r *round) peersOf(i int) (recvPeer, sendPeer int) {
	return (r.c.rank - i + r.c.size) % r.c.size, (r.c.rank + i) % r.c.size
}

// compareMasks finds the masks that have no counterpart.
func (r *round) compareMasks() error {
	const most = 60 << 10 // a slice of the bootstrap
	all, err := r.c.job.AllGather(r.c.life, r.links.appendMasks(nil, most))
	if err != nil {
		r.jobOver(err)
		return nil
	}
	what := disagreement(all)
	if what == "" {
		what = "more masks than can be compared"
	}
	return fmt.Errorf("transport: %w: %s", ErrMasks, what)
}

// without leaves out what is connected. Both ends do: a round succeeds at all ranks or at none.
func (c *Communicator) without(l Links) Links {
	c.mu.Lock()
	defer c.mu.Unlock()
	rest := func(masks map[int]uint64, send bool) map[int]uint64 {
		out := map[int]uint64{}
		for peer, mask := range masks {
			for channel := range c.channels {
				if c.conns[End{peer, channel, l.ConnIndex, send}] != nil {
					mask &^= 1 << channel
				}
			}
			if mask != 0 {
				out[peer] = mask
			}
		}
		return out
	}
	l.Send, l.Recv = rest(l.Send, true), rest(l.Recv, false)
	return l
}

// loop sets up and connects all ends, in batches of steps.
func (r *round) loop() {
	c := r.c
	done := 0
	var batch []*step
	for i := 1; i < c.size && r.over == nil; i++ {
		r.check()
		if s := r.step(i); len(s.talks) > 0 {
			batch = append(batch, s)
		}
		if i-done == c.vars.RoundPeers || i == c.size-1 {
			r.connect(batch)
			done, batch = i, nil
		}
	}
}

// connect polls the ends of a batch until all are connected or the round has failed.
func (r *round) connect(batch []*step) {
	const shortest, longest = 20 * time.Microsecond, time.Millisecond
	pause := shortest
	r.waitsFor("the ends to be connected")
	for r.check() {
		moved, left := false, 0
		for _, s := range batch {
			for _, e := range s.ends {
				if e.done {
					continue
				}
				done, err := e.connector.Connect(&e.peer)
				if err != nil {
					r.fail(fmt.Errorf("%s, %s: connect: %w", e.choice.Transport, e.end, err), false)
					return
				}
				if e.done = done; done {
					moved = true
				} else {
					left++
				}
			}
		}
		if left == 0 {
			return
		}
		if moved {
			pause = shortest
			continue
		}
		if r.hearFailures(batch) {
			return
		}
		select {
		case <-time.After(pause):
		case <-r.c.job.Done():
			r.jobOver(r.c.job.Err())
		case <-r.c.life.Done():
			r.jobOver(ErrClosed)
		}
		pause = min(2*pause, longest)
	}
}

// hearFailures looks whether a peer that is waited for has failed.
func (r *round) hearFailures(batch []*step) bool {
	for _, s := range batch {
		for _, t := range s.talks {
			at := meet{s.i, t.peer}
			if r.heard[at] {
				continue
			}
			b, ok, err := r.c.job.TryRecv(t.peer, r.lastTag(s.i))
			if err != nil {
				r.jobOver(err)
				return true
			}
			if ok {
				r.hear(at, b)
			}
		}
	}
	return r.failure != nil
}

// hear takes a peer's last message of a step.
func (r *round) hear(at meet, b []byte) {
	r.heard[at] = true
	if len(b) == 0 {
		return
	}
	m, err := decodeMessage(b)
	if err == nil && (m.round != r.number || !m.failed) {
		err = fmt.Errorf("%w: a last message of round %d that tells no failure", ErrProtocol, m.round)
	}
	r.peerFailed(at.peer, m.text, err)
}

func (r *round) peerFailed(peer int, text string, err error) {
	if err == nil {
		err = fmt.Errorf("%w: %s", ErrPeerFailed, text)
	}
	r.fail(&RankError{peer, r.c.job.Addr(peer), err}, true)
}

// finish exchanges the last messages, step by step: this rank has connected its ends, or why not.
func (r *round) finish() {
	for at := 0; at < len(r.meets) && r.over == nil; {
		upTo := at
		for ; upTo < len(r.meets) && r.meets[upTo].step == r.meets[at].step; upTo++ {
			if r.check() {
				r.say(r.meets[upTo], nil)
			}
		}
		for _, m := range r.meets[at:upTo] {
			if r.over != nil || r.heard[m] {
				continue
			}
			if b := r.recv(m.peer, r.lastTag(m.step)); r.over == nil {
				r.hear(m, b)
			}
		}
		at = upTo
	}
}

// vote makes all ranks keep the round, or none.
func (r *round) vote() error {
	c := r.c
	r.voted.Store(true) // before the context is looked at: Connect looks at them in the other order
	r.voted.Store(r.check())
	r.waitsFor("the vote of all ranks")
	mine := plan{round: r.number, failed: r.failure != nil, told: r.told}
	if mine.failed {
		mine.text = r.failure.Error()
	}
	all, err := c.job.AllGather(c.life, mine.append(nil))
	if err != nil {
		r.jobOver(err)
		return r.over
	}
	var failed *RankError
	for rank, b := range all {
		p, err := decodePlan(b)
		switch {
		case err != nil:
		case !p.failed, p.told && failed != nil:
			continue
		case rank == c.rank:
			err = r.failure
		default:
			err = fmt.Errorf("%w: %s", ErrPeerFailed, p.text)
		}
		if !p.told {
			return &RankError{rank, c.job.Addr(rank), err}
		}
		failed = &RankError{rank, c.job.Addr(rank), err}
	}
	if failed != nil {
		return failed
	}
	return nil
}
