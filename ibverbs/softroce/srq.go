package softroce

import (
	"sync/atomic"
	"syscall"

	"github.com/purerdma/purerdma/ibverbs/driver"
)

// srq is a receive queue that the responders of several queue pairs take from
// while a program posts. Its lock, that of the ring, is the last to be taken and
// held for one receive. A receive frees its place when it is taken, since those of
// several queue pairs complete in any order.
type srq struct {
	driver.BaseSRQ
	pd     *pd // whose memory the receives name
	cookie uint64
	users  atomic.Int64 // QPs
	ring   *recvQueue
	limit  int // armed low-water mark, 0 for none; under the lock of the ring
}

func (p *pd) CreateSRQ(c driver.SRQConfig) (driver.SRQ, error) {
	switch {
	case c.WR < 1 || c.WR > maxSRQWR, outside(c.SGE, maxSGE), outside(c.Limit, c.WR):
		return nil, syscall.EINVAL
	case p.e.srqs.Add(1) > maxSRQ:
		p.e.srqs.Add(-1)
		return nil, syscall.ENOMEM
	}
	p.users.Add(1)
	return &srq{pd: p, cookie: c.Cookie, ring: newRecvQueue(c.WR, c.SGE), limit: c.Limit}, nil
}

func (s *srq) PostRecv(wrs []driver.RecvWR) (int, error) { return s.ring.post(wrs) }

func (s *srq) Cap() driver.SRQAttr {
	s.ring.mu.Lock()
	defer s.ring.mu.Unlock()
	return driver.SRQAttr{WR: s.size(), SGE: s.ring.sge}
}

func (s *srq) Query() (driver.SRQAttr, error) {
	s.ring.mu.Lock()
	defer s.ring.mu.Unlock()
	return driver.SRQAttr{WR: s.size(), SGE: s.ring.sge, Limit: s.limit}, nil
}

func (s *srq) size() int { return int(s.ring.mask) + 1 }

// SetLimit raises the event at once if fewer receives are left already: nobody may
// take another, and who armed the mark would wait for ever.
func (s *srq) SetLimit(n int) error {
	s.ring.mu.Lock()
	if outside(n, s.size()) {
		s.ring.mu.Unlock()
		return syscall.EINVAL
	}
	s.limit = n
	low := s.reached()
	s.ring.mu.Unlock()
	if low {
		s.raise(driver.EventSRQLimitReached)
	}
	return nil
}

// reached says once whether the armed mark was passed.
func (s *srq) reached() bool {
	low := s.limit > 0 && s.ring.posted-s.ring.done < uint64(s.limit)
	if low {
		s.limit = 0
	}
	return low
}

// Resize keeps what is posted. It goes neither below that nor below the armed mark.
func (s *srq) Resize(wr int) error {
	s.ring.mu.Lock()
	defer s.ring.mu.Unlock()
	r := s.ring
	if wr < 1 || wr > maxSRQWR || uint64(wr) < r.posted-r.done || wr < s.limit {
		return syscall.EINVAL
	}
	bigger := newRecvQueue(wr, r.sge)
	for ; r.done < r.posted; r.done++ {
		i := r.done & r.mask
		old := &r.blocks[i/blockSize][i%blockSize]
		e := bigger.slot()
		e.id, e.sgl = old.id, append(e.sgl, old.sgl...)
		bigger.posted++
	}
	r.blocks, r.mask, r.posted, r.done = bigger.blocks, bigger.mask, bigger.posted, 0
	r.freed.Store(0)
	return nil
}

func (s *srq) Close() error {
	if s.users.Load() > 0 {
		return driver.ErrBusy
	}
	s.pd.e.srqs.Add(-1)
	s.pd.users.Add(-1)
	return nil
}

// take copies the oldest receive into to.
func (s *srq) take(to *receive) bool {
	s.ring.mu.Lock()
	if !s.ring.pop(to) {
		s.ring.mu.Unlock()
		return false
	}
	s.ring.freed.Store(s.ring.done)
	low := s.reached()
	s.ring.mu.Unlock()
	if low {
		s.raise(driver.EventSRQLimitReached)
	}
	return true
}

// raise delivers an event about the queue to its context.
func (s *srq) raise(t driver.EventType) {
	s.pd.ctx.events.Put(driver.Event{Type: t, Cookie: s.cookie})
}

// lastWQE tells the user of a shared queue once that a queue pair in error takes no
// more from it, and that all it took has completed: who wants the completions of
// everything waits for that before closing the queue pair (IBTA volume 1, 11.6.3).
func (q *qp) lastWQE() {
	if q.srq != nil && !q.lastWQETold {
		q.lastWQETold = true
		q.raise(driver.EventQPLastWQEReached)
	}
}
