package rxe

import (
	"errors"
	"syscall"

	"github.com/purerdma/purerdma/ibverbs/driver"
	"github.com/purerdma/purerdma/ibverbs/internal/uverbs"
)

// SRQ is a shared receive queue. It implements driver.SRQ.
type SRQ struct {
	driver.BaseSRQ
	q    recvQueue
	lost error // why the queue is out of reach for good

	pd  *PD
	h   uverbs.SRQHandle
	cap driver.SRQAttr // Limit is not kept: the kernel disarms it
}

// CreateSRQ implements driver.PD.
func (p *PD) CreateSRQ(c driver.SRQConfig) (driver.SRQ, error) {
	if c.Limit > c.WR {
		return nil, hint(syscall.EINVAL, "the limit is %d, the queue has room for %d receives", c.Limit, c.WR)
	}
	var resp [24]byte // struct rxe_create_srq_resp
	made, err := p.dev.Dev.CreateSRQ(uverbs.SRQConfig{PD: p.h, WR: c.WR, SGE: c.SGE, Limit: c.Limit, Cookie: c.Cookie}, uverbs.UHW{Out: resp[:]})
	if err != nil {
		if err == syscall.EINVAL {
			a := &p.dev.attr
			err = overLimit(err,
				limit{"the number of receives", c.WR, a.MaxSRQWR},
				limit{"the number of scatter entries", c.SGE, a.MaxSRQSGE},
				limit{"the limit", c.Limit, c.WR})
		}
		return nil, err
	}
	s := &SRQ{pd: p, h: made.Handle, cap: driver.SRQAttr{WR: made.WR, SGE: made.SGE}}
	if err := s.mapQueue(resp[:16]); err != nil {
		return nil, errors.Join(err, p.dev.Dev.DestroySRQ(s.h))
	}
	return s, nil
}

// mapQueue maps the ring of a struct mminfo, and takes it for the queue if it is
// one for cap.
func (s *SRQ) mapQueue(mminfo []byte) error {
	r, err := s.pd.dev.mapRing(mminfo, recvWQESize+s.cap.SGE*sgeSize, s.cap.WR)
	if err != nil {
		return err
	}
	s.q = recvQueue{ring: r, limit: s.cap.WR, sge: s.cap.SGE}
	s.q.resume()
	return nil
}

// PostRecv implements driver.SRQ. It makes no system call.
func (s *SRQ) PostRecv(wrs []driver.RecvWR) (int, error) {
	if s.lost != nil {
		return 0, s.lost
	}
	n, err := s.q.write(wrs)
	if n > 0 {
		s.q.publish()
	}
	return n, err
}

// Cap implements driver.SRQ.
func (s *SRQ) Cap() driver.SRQAttr { return s.cap }

// Query implements driver.SRQ. The kernel tells the size of the ring, which may
// have room for more than PostRecv takes.
func (s *SRQ) Query() (driver.SRQAttr, error) {
	a, err := s.pd.dev.Dev.QuerySRQ(s.h)
	a.WR, a.SGE = s.cap.WR, s.cap.SGE
	return a, err
}

// SetLimit implements driver.SRQ. The kernel looks at the limit when a message
// takes a receive, so one that is armed too late waits for the next message.
func (s *SRQ) SetLimit(n int) error {
	if n < 0 || n > s.cap.WR {
		return overLimit(syscall.EINVAL, limit{"the limit", n, s.cap.WR})
	}
	return s.pd.dev.Dev.SetSRQLimit(s.h, n, s.answer())
}

// Resize implements driver.SRQ. The kernel moves what is posted to a new ring. It
// must not be asked for too little: early kernels 6.1 free the queue then.
func (s *SRQ) Resize(wr int) error {
	if s.lost != nil {
		return s.lost
	}
	if err := overLimit(syscall.EINVAL, limit{"the number of receives", wr, s.pd.dev.attr.MaxSRQWR}); err != syscall.EINVAL {
		return err
	}
	if posted := s.q.used(s.q.prod, s.q.consumed()); wr < max(posted, 1) {
		return hint(syscall.EINVAL, "%d receives are asked for, %d are posted", wr, posted)
	}
	u := s.answer()
	if err := s.pd.dev.Dev.ResizeSRQ(s.h, wr, u); err != nil {
		if err == syscall.EINVAL {
			err = hint(err, "a limit above %d is armed: disarm it first", wr)
		}
		return err
	}
	old := s.q.ring
	s.cap.WR = wr
	if err := s.mapQueue(u.Addressed); err != nil {
		s.lost = hint(err, "the queue was made anew by Resize, but could not be mapped: close it")
		return s.lost
	}
	return old.release()
}

// answer is room for a struct mminfo. The kernel wants an address for it with
// every change, though it answers only where the ring is another.
func (s *SRQ) answer() uverbs.UHW { return uverbs.UHW{Addressed: make([]byte, 16)} }

// Close implements driver.SRQ.
func (s *SRQ) Close() error {
	err := s.pd.dev.Dev.DestroySRQ(s.h)
	if !destroyed(err) {
		return err
	}
	return errors.Join(err, s.q.release())
}
