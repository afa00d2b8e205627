package transport

import (
	"errors"
	"fmt"
	"math/bits"
	"slices"
	"strings"

	"github.com/purerdma/purerdma/transport/driver"
)

// step is step i of the loop.
type step struct {
	i     int
	talks []*talk  // in the order in which is sent; what comes is taken in the reverse
	ends  []*entry // in the order in which they are connected: channel by channel, the sending ones first
}

// talk is what this rank has with one peer in one step.
type talk struct {
	peer       int
	recvMask   uint64 // channels on which this rank receives from the peer
	sendMask   uint64
	recv, send []*entry
	index      int // of the transport
	floor      int // transports before it were refused by one end or the other
	choice     Choice
	refused    []Refusal // before the floor
	out        message
	settled    bool // both have the same transport, or one has failed
}

// step sets up the ends of step i and exchanges their blobs.
func (r *round) step(i int) *step {
	s := &step{i: i}
	recvPeer, sendPeer := r.peersOf(i)
	if recvPeer == sendPeer {
		s.add(&talk{peer: recvPeer, recvMask: r.links.Recv[recvPeer], sendMask: r.links.Send[sendPeer]})
	} else {
		s.add(&talk{peer: recvPeer, recvMask: r.links.Recv[recvPeer]})
		s.add(&talk{peer: sendPeer, sendMask: r.links.Send[sendPeer]})
	}
	for open := s.talks; len(open) > 0 && r.over == nil; {
		for _, t := range open {
			r.setup(t)
		}
		for _, t := range open {
			r.send(t.peer, r.tag(i), r.encode(t))
		}
		for _, t := range slices.Backward(open) {
			if b := r.recv(t.peer, r.tag(i)); r.over == nil {
				r.take(t, b)
			}
		}
		open = slices.DeleteFunc(slices.Clone(open), func(t *talk) bool { return t.settled })
	}
	for _, t := range s.talks {
		s.ends = append(s.ends, t.send...)
	}
	for _, t := range s.talks {
		s.ends = append(s.ends, t.recv...)
	}
	slices.SortStableFunc(s.ends, func(a, b *entry) int { return a.end.Channel - b.end.Channel })
	return s
}

func (s *step) add(t *talk) {
	if t.recvMask|t.sendMask != 0 {
		s.talks = append(s.talks, t)
	}
}

// setup lets the first transport that can, from the floor on, make the ends of t.
func (r *round) setup(t *talk) {
	t.out = message{round: r.number}
	if r.failure != nil {
		return
	}
	index, choice := r.c.choose(t.peer, t.floor)
	choice.Refused = slices.Concat(t.refused, choice.Refused)
	t.index, t.choice = index, choice
	if index == len(r.c.transports) {
		r.fail(fmt.Errorf("rank %d: %w: %s", t.peer, ErrNoTransport, choice), false)
		return
	}
	t.out.transport = choice.Transport
	for _, refused := range choice.Refused {
		if refused.Rank == r.c.rank {
			t.out.text += refused.Transport + "\t" + refused.Reason + "\n"
		}
	}
	t.recv, t.out.recv = r.make(t, t.recvMask, false)
	t.send, t.out.send = r.make(t, t.sendMask, true)
}

// make sets up the ends of one direction.
func (r *round) make(t *talk, mask uint64, send bool) (ends []*entry, out []Blob) {
	transport := r.c.transports[t.index]
	for ; mask != 0; mask &= mask - 1 {
		if !r.check() {
			return ends, out
		}
		e := &entry{end: End{Peer: t.peer, Channel: bits.TrailingZeros64(mask), ConnIndex: r.links.ConnIndex, Send: send}, choice: t.choice}
		var blob Blob
		connector, err := transport.Setup(driver.Request{Send: send, Self: &r.c.peers[r.c.rank], Peer: &r.c.peers[t.peer],
			Channel: e.end.Channel, ConnIndex: e.end.ConnIndex, Buffers: r.c.vars.Buffers}, &blob)
		if err == nil && connector == nil {
			err = errors.New("no connector")
		}
		if err != nil {
			r.fail(fmt.Errorf("%s, %s: set up: %w", t.choice.Transport, e.end, err), false)
			return ends, out
		}
		e.connector = connector
		r.made = append(r.made, e)
		ends, out = append(ends, e), append(out, blob)
	}
	return ends, out
}

// encode is the message of t: blobs, or the failure of this rank, which another talk of the step may have brought.
func (r *round) encode(t *talk) []byte {
	if r.failure != nil {
		t.out = message{round: r.number, failed: true, text: r.failure.Error()}
	}
	return t.out.append(nil)
}

// take reads the peer's message of this step.
func (r *round) take(t *talk, b []byte) {
	m, err := decodeMessage(b)
	if err == nil && m.round != r.number {
		err = fmt.Errorf("%w: a message of round %d, want %d", ErrProtocol, m.round, r.number)
	}
	if err != nil || m.failed || t.out.failed {
		t.settled = true
		if err != nil || m.failed {
			r.peerFailed(t.peer, m.text, err)
		}
		return
	}
	theirs := r.c.number(m.transport)
	switch {
	case theirs < 0:
		t.settled = true
		r.peerFailed(t.peer, "", fmt.Errorf("%w: transport %q", ErrProtocol, m.transport))
	case theirs != t.index:
		r.reconsider(t, theirs, &m)
	case len(m.recv) != len(t.send) || len(m.send) != len(t.recv):
		t.settled = true
		r.peerFailed(t.peer, "", fmt.Errorf("%w: %d and %d blobs, want %d and %d", ErrProtocol, len(m.recv), len(m.send), len(t.send), len(t.recv)))
	default:
		t.settled = true
		for i, e := range t.send { // the peer's receiving ends come first
			e.peer = m.recv[i]
		}
		for i, e := range t.recv {
			e.peer = m.send[i]
		}
		r.c.log.Debug("transport: chosen", "peer", t.peer, "choice", t.choice)
	}
}

// reconsider takes back what was made with a transport that the other end does not take. The later of the two is the earliest that
// both may take, and both know it.
func (r *round) reconsider(t *talk, theirs int, in *message) {
	t.refused = t.choice.Refused
	if theirs > t.index {
		t.refused = append(t.refused, parseRefusals(in.text, t.peer)...)
	}
	t.floor = max(theirs, t.index)
	r.c.log.Warn("transport: the ends chose different transports; both take the later", "peer", t.peer, "here", t.choice.Transport, "there",
		in.transport)
	for _, e := range slices.Concat(t.send, t.recv) {
		if err := e.connector.Close(); err != nil {
			r.fail(fmt.Errorf("%s, %s: close: %w", t.choice.Transport, e.end, err), false)
		}
		r.made = slices.DeleteFunc(r.made, func(m *entry) bool { return m == e })
	}
	t.recv, t.send = nil, nil
}

func parseRefusals(text string, rank int) (all []Refusal) {
	for line := range strings.Lines(text) {
		if name, reason, ok := strings.Cut(strings.TrimSuffix(line, "\n"), "\t"); ok {
			all = append(all, Refusal{Transport: name, Rank: rank, Reason: reason})
		}
	}
	return all
}
