package transport

import (
	"context"
	"errors"
)

// Group is messages with any ranks that are under way together, as between NCCL's group calls: none waits for another of a different rank or
// direction, so that ranks that do so all at once cannot wait for each other in a circle. Those of one rank and direction keep their
// order. It is for one goroutine at a time and can be used again; memory for its messages is kept, so that it does not allocate
// from the second time on.
type Group struct {
	comm    *Communicator
	members []member
	calls   []*call
	waited  bool
}

type member struct {
	send bool
	peer int
	b    span
	n    int
	err  error
}

// NewGroup makes an empty group.
func (c *Communicator) NewGroup() *Group { return &Group{comm: c} }

// Send adds b for a rank, and returns its number in the group. b is the group's until Wait returns.
func (g *Group) Send(peer int, b []byte) int {
	return g.add(member{send: true, peer: peer, b: host(b)})
}

// Recv adds a place for the next message of a rank, likewise. [Group.Received] is its size.
func (g *Group) Recv(peer int, b []byte) int { return g.add(member{peer: peer, b: host(b)}) }

func (g *Group) add(m member) int {
	if g.waited {
		g.waited = false
		clear(g.members)
		g.members = g.members[:0]
	}
	g.members = append(g.members, m)
	return len(g.members) - 1
}

// Wait begins all messages and returns when all are over, each as by [Communicator.Send] and [Communicator.Recv]. Its error joins those
// of all; one that fails does not end the others. The next Send or Recv begins anew.
func (g *Group) Wait(ctx context.Context) error {
	if g.waited {
		return nil
	}
	g.waited = true
	for i := range g.members {
		m := &g.members[i]
		if m.err != nil { // no memory
			g.calls = append(g.calls, refused(m.send, m.err))
			continue
		}
		g.calls = append(g.calls, g.comm.newCall(m.send, m.peer, m.b))
	}
	drive(ctx, g.calls)
	failed := false
	for i, k := range g.calls {
		m := &g.members[i]
		op := "receive from"
		if m.send {
			op = "send to"
		}
		m.n, m.err = k.end(g.comm, op, m.peer)
		m.b = span{}
		failed = failed || m.err != nil
	}
	clear(g.calls)
	g.calls = g.calls[:0]
	if !failed {
		return nil
	}
	errs := make([]error, len(g.members))
	for i := range g.members {
		errs[i] = g.members[i].err
	}
	return errors.Join(errs...)
}

// Received is the size of message i, once Wait has returned: 0 where it was sent or has failed.
func (g *Group) Received(i int) int { return g.members[i].n }

// Err is why message i has failed, once Wait has returned, or nil.
func (g *Group) Err(i int) error { return g.members[i].err }
