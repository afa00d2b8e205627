package transport

import (
	"context"
	"slices"
)

// Send sends b to a rank and returns when the peer can have all of it without this rank: b is the caller's again. It may wait for the
// peer to call Recv. Messages to one rank arrive in the order in which their Sends were called, each whole and once; 0 bytes are a
// message too. Any goroutine may call it; calls for different ranks do not wait for each other. A rank may send to itself.
//
// The links are those of the first Connect with connection index 0 (see [Pairs]). The calls that wait move the data: without one nothing
// runs, and what a peer sends waits for Recv.
//
// A nil error says that the message is in the connection's memory, not that the peer's Recv has it: what has not been received when the
// peer closes or dies is lost. Over shared memory calls after that are nil, too, and their messages lost, until this rank has learned of
// the end: in a moment, by a file in up to 0.2 s; over a network they fail. Where it matters let the peer answer, or meet it in a Barrier of
// Config.Job after its Recv.
//
// Errors are [PeerError]s. When ctx ends before anything of the message has left nothing of it is sent. Later the connection ends, with
// ErrCut here and an error at the peer: that a part has come cannot be taken back.
func (c *Communicator) Send(ctx context.Context, peer int, b []byte) error {
	k := [1]*call{c.newCall(true, peer, host(b))}
	drive(ctx, k[:])
	_, err := k[0].end(c, "send to", peer)
	return err
}

// Recv waits for the next message of a rank, copies it into b and returns its size. A message longer than b is lost, and the error is a
// [SizeError]; those after it come as usual. When ctx ends in the middle of a message that one is lost, too. After the last message
// of a peer that has closed, the error is ErrPeerClosed over shared memory, and over a network that the peer is gone.
func (c *Communicator) Recv(ctx context.Context, peer int, b []byte) (int, error) {
	k := [1]*call{c.newCall(false, peer, host(b))}
	drive(ctx, k[:])
	return k[0].end(c, "receive from", peer)
}

// SendRecv sends out to one rank while it receives into in from another, or the same, so that ranks that do so all at once do not
// wait for each other in a circle. It returns the size of the message received, and the first error; the other half is done all the same.
func (c *Communicator) SendRecv(ctx context.Context, to int, out []byte, from int, in []byte) (int, error) {
	k := [2]*call{c.newCall(true, to, host(out)), c.newCall(false, from, host(in))}
	drive(ctx, k[:])
	_, err := k[0].end(c, "send to", to)
	n, e := k[1].end(c, "receive from", from)
	if err == nil {
		err = e
	}
	return n, err
}

// addLanes makes lanes of the ends of a round that are the first of their direction. The caller holds mu.
func (c *Communicator) addLanes(made []*entry) {
	type way struct {
		peer int
		send bool
	}
	found := map[way][]*entry{}
	for _, e := range made {
		if w := (way{e.end.Peer, e.end.Send}); e.end.ConnIndex == 0 {
			found[w] = append(found[w], e)
		}
	}
	for w, ends := range found {
		at := &c.recvLanes[w.peer]
		if w.send {
			at = &c.sendLanes[w.peer]
		}
		if at.Load() != nil {
			continue
		}
		slices.SortFunc(ends, func(a, b *entry) int { return a.end.Channel - b.end.Channel })
		l := &lane{comm: c, peer: w.peer, send: w.send, transport: ends[0].choice.Transport}
		for _, e := range ends {
			l.connectors = append(l.connectors, e.connector)
		}
		at.Store(l)
	}
}

// lanes are all there are.
func (c *Communicator) lanes() (all []*lane) {
	for peer := range c.size {
		for _, l := range []*lane{c.sendLanes[peer].Load(), c.recvLanes[peer].Load()} {
			if l != nil {
				all = append(all, l)
			}
		}
	}
	return all
}

// unconnected is why there is no lane.
func (c *Communicator) unconnected() error {
	if c.life.Err() != nil {
		return ErrClosed
	}
	return ErrNotConnected
}
