package transport

import "sync"

// self is the messages of a rank with itself: what it sends goes into what it receives, in the order of the calls of each.
type self struct {
	mu          sync.Mutex
	first, last *call // sends or receives that have no counterpart yet: never both
	err         error
}

func (s *self) start(k *call) {
	s.mu.Lock()
	defer s.mu.Unlock()
	k.next = nil
	switch {
	case s.err != nil:
		k.stage, k.err = over, s.err
	case s.first == nil:
		k.stage, s.first, s.last = queued, k, k
	case s.first.send == k.send:
		k.stage = queued
		s.last.next, s.last = k, k
	default:
		other := s.first
		s.take(other)
		match(k, other)
		k.stage = over
		other.granted <- struct{}{}
	}
}

// match copies a message.
func match(a, b *call) {
	if !a.send {
		a, b = b, a
	}
	b.n = a.b.n
	if a.b.n > b.b.n {
		b.err = &SizeError{a.b.n, b.b.n}
		return
	}
	if _, err := b.b.copy(a.b); err != nil {
		a.err, b.err = err, err
	}
}

// take takes a call out of the queue; false if it is not there any more.
func (s *self) take(k *call) bool {
	var before *call
	for at := s.first; at != nil; before, at = at, at.next {
		if at != k {
			continue
		}
		if before == nil {
			s.first = k.next
		} else {
			before.next = k.next
		}
		if s.last == k {
			s.last = before
		}
		k.next = nil
		return true
	}
	return false
}

func (s *self) cancel(k *call, why error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.take(k) {
		k.err = why
	} else {
		<-k.granted
	}
	k.stage = over
}

// end ends all calls.
func (s *self) end(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err == nil {
		s.err = err
	}
	for k := s.first; k != nil; k = s.first {
		s.take(k)
		k.err = err
		k.granted <- struct{}{}
	}
}
