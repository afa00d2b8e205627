package ibverbs

import (
	"errors"
	"fmt"
	"syscall"

	"github.com/purerdma/purerdma/ibverbs/driver"
)

// SRQ is a receive queue that several QPs share (struct ibv_srq): a message to
// any of them takes the oldest receive. The completion comes in the receive CQ
// of that QP.
//
// A QP that fails leaves the receives to the others. One that a message was coming
// into completes as flushed, then EventQPLastWQEReached says that the QP takes no
// more: who counts receives moves a QP to Err, waits for the event and takes the
// completions out before Close or Reset, which drop them. Soft-RoCE of Linux 6.1 does
// not have the event.
type SRQ struct {
	dev  *device
	d    driver.SRQ
	n    *node
	cap  SRQAttr
	recv queue
}

// CreateSRQ makes an SRQ; QPConfig.SRQ gives it to QPs. A Limit arms it as
// SetLimit does.
func (p *PD) CreateSRQ(c SRQConfig) (*SRQ, error) {
	const op = "create SRQ"
	v := p.dev
	if c.WR < 1 {
		return nil, &Error{Op: op, Device: v.info.Name, Object: p.n.name, Err: errSRQSize}
	}
	s := &SRQ{dev: v}
	err := v.create(op, rankSRQ, "SRQ", []*node{p.n}, func(n *node) (string, func() error, error) {
		c.Cookie = n.id
		d, err := p.d.CreateSRQ(c)
		if err != nil {
			return "", nil, v.explainSRQ(err, c)
		}
		s.d, s.n, s.cap = d, n, d.Cap()
		s.recv.suit(d)
		s.recv.full = &Error{Op: postToSRQ, Device: v.info.Name, Object: n.name, Err: driver.ErrQueueFull}
		return "", s.destroy, nil
	}, s)
	if err != nil {
		return nil, err
	}
	return s, nil
}

const postToSRQ = "post receive"

// PostRecv is QP.PostRecv for the shared queue.
func (s *SRQ) PostRecv(wrs ...RecvWR) (n int, err error) {
	s.recv.Lock()
	if s.recv.fault != nil {
		err = s.recv.fault
	} else if n, err = s.d.PostRecv(hide(wrs)); err == driver.ErrQueueFull {
		err = s.recv.full
	} else if err != nil {
		err = wrap(postToSRQ, s.dev.info.Name, s.n.name, err)
	}
	s.recv.Unlock()
	return n, err
}

// Cap is the sizes that were made.
func (s *SRQ) Cap() SRQAttr {
	s.recv.Lock()
	defer s.recv.Unlock()
	return s.cap
}

// Query asks the device for the sizes and for the limit that is armed.
func (s *SRQ) Query() (a SRQAttr, err error) {
	err = s.control("query SRQ", func() (err error) { a, err = s.d.Query(); return err })
	return a, err
}

// SetLimit arms one EventSRQLimitReached for when fewer than n receives are
// left; it has to be armed again after each. 0 disarms it.
func (s *SRQ) SetLimit(n int) error {
	return s.control("set limit of SRQ", func() error { return explain(s.d.SetLimit(n), extent{"the limit", n, 0, s.cap.WR}) })
}

// Resize makes room for at least wr receives, not fewer than are posted.
func (s *SRQ) Resize(wr int) error {
	return s.control("resize SRQ", func() error {
		err := s.dev.explainSRQ(s.d.Resize(wr), SRQConfig{WR: wr})
		s.cap = s.d.Cap()
		if err == syscall.EINVAL {
			err = because(err, fmt.Sprintf("room for %d receives is less than are posted, or than the limit that is armed", wr))
		}
		return err
	})
}

// control runs one call at a time, and none beside a post: a queue that is being
// resized is not posted to.
func (s *SRQ) control(op string, f func() error) error {
	s.recv.Lock()
	defer s.recv.Unlock()
	if s.recv.fault != nil {
		return wrap(op, s.dev.info.Name, s.n.name, errors.Unwrap(s.recv.fault))
	}
	return wrap(op, s.dev.info.Name, s.n.name, f())
}

// fail makes the queue refuse with err from now on.
func (s *SRQ) fail(err error) {
	s.recv.Lock()
	defer s.recv.Unlock()
	if s.recv.fault == nil {
		s.recv.fault = wrap(postToSRQ, s.dev.info.Name, s.n.name, err)
	}
}

func (s *SRQ) destroy() error {
	s.recv.Lock()
	defer s.recv.Unlock()
	err := s.d.Close()
	if !errors.Is(err, syscall.EBUSY) {
		s.recv.fault = wrap("use", s.dev.info.Name, s.n.name, driver.ErrClosed)
	}
	return err
}

// Close is ErrBusy while a QP uses the queue. What was posted and not used has no
// completion.
func (s *SRQ) Close() error { return s.dev.closeNode("close SRQ", s.n) }
