package mr

import (
	"slices"
	"sync"

	"github.com/purerdma/purerdma/ibverbs"
)

// registration is what the cache keeps: *ibverbs.MR.
type registration interface {
	Close() error
}

// index is the registrations, by rising first address.
type index[R registration] struct {
	register func(ibverbs.Memory, ibverbs.Access) (R, error)
	mu       sync.Mutex
	entries  []*entry[R]
	longest  uint64 // bytes of the longest entry that there ever was
}

// entry is one registration. ready is closed when reg or err is set; users is
// under the index's lock.
type entry[R registration] struct {
	start, end uint64
	access     ibverbs.Access
	ready      chan struct{}
	reg        R
	err        error
	users      int
}

// share is one user's part in an entry.
type share[R registration] struct {
	mu     sync.Mutex
	index  *index[R]
	entry  *entry[R]
	off, n int  // of the user's range within the entry
	left   bool // the entry no longer counts it
	closed bool
}

func newIndex[R registration](register func(ibverbs.Memory, ibverbs.Access) (R, error)) *index[R] {
	return &index[R]{register: register}
}

func (x *index[R]) len() int {
	x.mu.Lock()
	defer x.mu.Unlock()
	return len(x.entries)
}

// get finds or makes the entry of m. It registers outside the lock.
func (x *index[R]) get(m ibverbs.Memory, a ibverbs.Access) (*share[R], error) {
	var start, end uint64
	if m != nil {
		s := m.Span()
		start, end = s.Addr(), s.Addr()+uint64(s.Len())
	}
	x.mu.Lock()
	e := x.find(start, end, a)
	if e == nil {
		e = &entry[R]{start: start, end: end, access: a, ready: make(chan struct{}), users: 1}
		x.insert(e)
		x.mu.Unlock()
		x.fill(e, m)
	} else {
		e.users++
		x.mu.Unlock()
		<-e.ready
	}
	if e.err != nil {
		return nil, e.err
	}
	return &share[R]{index: x, entry: e, off: int(start - e.start), n: int(end - start)}, nil
}

// fill registers, and takes e out again if that fails.
func (x *index[R]) fill(e *entry[R], m ibverbs.Memory) {
	defer close(e.ready)
	if e.reg, e.err = x.register(m, e.access); e.err != nil {
		x.mu.Lock()
		x.remove(e)
		x.mu.Unlock()
	}
}

// find is an entry that contains start to end, nil if there is none. It looks
// back no further than the longest entry could reach from.
func (x *index[R]) find(start, end uint64, a ibverbs.Access) *entry[R] {
	for _, e := range slices.Backward(x.entries[:x.after(start)]) {
		if start-e.start > x.longest {
			return nil
		}
		if e.end >= end && e.access == a {
			return e
		}
	}
	return nil
}

// after is the position behind all entries that begin at start or before.
func (x *index[R]) after(start uint64) int {
	i, _ := slices.BinarySearchFunc(x.entries, start, func(e *entry[R], at uint64) int {
		if e.start <= at {
			return -1
		}
		return 1
	})
	return i
}

func (x *index[R]) insert(e *entry[R]) {
	x.entries = slices.Insert(x.entries, x.after(e.start), e)
	x.longest = max(x.longest, e.end-e.start)
}

func (x *index[R]) remove(e *entry[R]) {
	if i := slices.Index(x.entries, e); i >= 0 {
		x.entries = slices.Delete(x.entries, i, i+1)
	}
}

// close ends the registration with its last user, outside the lock: it waits
// for accesses in progress.
func (s *share[R]) close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil
	}
	if !s.left {
		s.left = true
		x := s.index
		x.mu.Lock()
		s.entry.users--
		last := s.entry.users == 0
		if last {
			x.remove(s.entry)
		}
		x.mu.Unlock()
		if !last {
			s.closed = true
			return nil
		}
	}
	if err := s.entry.reg.Close(); err != nil {
		return err
	}
	s.closed = true
	return nil
}
