package tune

import (
	"github.com/purerdma/purerdma/nettransport"
)

// queue is requests in the order in which they were started.
type queue struct {
	requests   [nettransport.MaxRequests]nettransport.Request
	head, tail uint
	sizes      [1]int
}

func (q *queue) push(r nettransport.Request) {
	q.requests[q.tail%nettransport.MaxRequests] = r
	q.tail++
}

// Finished implements measure.Direction.
func (q *queue) Finished() (n int, done bool, err error) {
	if q.head == q.tail {
		return 0, false, nil
	}
	done, err = q.requests[q.head%nettransport.MaxRequests].Test(q.sizes[:])
	if done {
		q.head++
	}
	return q.sizes[0], done, err
}

// outgoing is a connection's way out as a measure.Direction. The transport bounds what is in flight, and so the queue.
type outgoing struct {
	queue
	c  *nettransport.SendComm
	mr *nettransport.MR
}

// Start implements measure.Direction.
func (o *outgoing) Start(off, n int) (bool, error) {
	r, ok, err := o.c.Isend(nettransport.Buffer{MR: o.mr, Off: off, N: n})
	if ok {
		o.push(r)
	}
	return ok, err
}

// incoming is a connection's way in.
type incoming struct {
	queue
	c  *nettransport.RecvComm
	mr *nettransport.MR
}

// Start implements measure.Direction.
func (i *incoming) Start(off, n int) (bool, error) {
	r, ok, err := i.c.Irecv(nettransport.Buffer{MR: i.mr, Off: off, N: n})
	if ok {
		i.push(r)
	}
	return ok, err
}
