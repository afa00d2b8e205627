package bootstrap

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"

	"github.com/purerdma/purerdma/socketboot/internal/cause"
)

// messageCost is what a queued message counts for besides its bytes, so that empty ones are bounded too.
const messageCost = 64

type key struct {
	from int
	tag  uint32
}

// state is what a rank knows: messages that wait, and the fate of the others. Every kind of Job has one.
type state struct {
	rank, size int
	limits     Limits
	addr       func(rank int) string
	life       context.Context // ends with err
	end        context.CancelCauseFunc

	mu      sync.Mutex
	changed chan struct{} // closed, and replaced, when something below has changed
	queues  map[key][][]byte
	queued  int
	left    map[int]uint64 // ranks that have left, and how many all-gathers they took part in
	err     error          // the first failure, or net.ErrClosed
}

func newState(rank, size int, l Limits, addr func(int) string) *state {
	s := &state{rank: rank, size: size, limits: l.orDefaults(), addr: addr, changed: make(chan struct{}), queues: map[key][][]byte{},
		left: map[int]uint64{}}
	s.life, s.end = context.WithCancelCause(context.Background())
	return s
}

func (s *state) Rank() int             { return s.rank }
func (s *state) Size() int             { return s.size }
func (s *state) Done() <-chan struct{} { return s.life.Done() }
func (s *state) Addr(rank int) string  { return s.addr(rank) }

func (s *state) Err() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err
}

// notify wakes all that wait. The caller holds the lock.
func (s *state) notify() {
	close(s.changed)
	s.changed = make(chan struct{})
}

// await waits until ready, which is called under the lock, says so. The error is ready's or that of ctx.
func (s *state) await(ctx context.Context, ready func() (bool, error)) error {
	if ctx == nil {
		return cause.ErrNoContext
	}
	for {
		s.mu.Lock()
		ok, err := ready()
		changed := s.changed
		s.mu.Unlock()
		if ok || err != nil {
			return err
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return cause.Of(ctx)
		}
	}
}

// put queues a message that arrived.
func (s *state) put(from int, tag uint32, b []byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.err != nil:
		return s.err
	case len(b) > s.limits.Message:
		return fmt.Errorf("%w: a message of %d bytes", ErrTooLong, len(b))
	case s.queued+len(b)+messageCost > s.limits.Queued:
		return fmt.Errorf("%w: %d bytes wait to be received", ErrTooMany, s.queued)
	}
	k := key{from, tag}
	s.queues[k] = append(s.queues[k], b)
	s.queued += len(b) + messageCost
	s.notify()
	return nil
}

// take removes the next message of k. The caller holds the lock.
func (s *state) take(k key) ([]byte, bool, error) {
	if q := s.queues[k]; len(q) > 0 {
		b := q[0]
		if s.queues[k] = q[1:]; len(q) == 1 {
			delete(s.queues, k)
		}
		s.queued -= len(b) + messageCost
		return b, true, nil
	}
	if s.err != nil {
		return nil, false, s.err
	}
	if _, gone := s.left[k.from]; gone {
		return nil, false, s.about(k.from, "", ErrLeft)
	}
	return nil, false, nil
}

func (s *state) TryRecv(from int, tag uint32) ([]byte, bool, error) {
	if err := s.checkRank("receive from", from); err != nil {
		return nil, false, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.take(key{from, tag})
}

func (s *state) Recv(ctx context.Context, from int, tag uint32) (b []byte, err error) {
	if err := s.checkRank("receive from", from); err != nil {
		return nil, err
	}
	err = s.await(ctx, func() (ok bool, err error) {
		b, ok, err = s.take(key{from, tag})
		return ok, err
	})
	if err != nil {
		return nil, s.blame(from, fmt.Sprintf("receive with tag %#x", tag), err)
	}
	return b, nil
}

func (s *state) checkRank(what string, rank int) error {
	if rank < 0 || rank >= s.size {
		return fmt.Errorf("bootstrap: %s rank %d: the job has ranks 0 to %d", what, rank, s.size-1)
	}
	return nil
}

// about is an error that concerns a rank.
func (s *state) about(rank int, op string, err error) error {
	return &RankError{Op: op, Rank: rank, Addr: s.addr(rank), Err: err}
}

// blame adds the rank that was waited for, unless the error already names one.
func (s *state) blame(rank int, op string, err error) error {
	if e := (*RankError)(nil); err == nil || errors.As(err, &e) || errors.Is(err, net.ErrClosed) {
		return err
	}
	return s.about(rank, op, err)
}

// fail records the end of the job for this rank; false if it has ended before.
func (s *state) fail(err error) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.failLocked(err)
}

// failLocked is fail for a caller that holds the lock. Those it wakes go on when the lock is free.
func (s *state) failLocked(err error) bool {
	if s.err != nil {
		return false
	}
	s.err = err
	s.end(err)
	s.notify()
	return true
}

// leave records that a rank has left after so many all-gathers; false if that is known.
func (s *state) leave(rank int, took uint64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.leaveLocked(rank, took)
}

// leaveLocked is leave for a caller that holds the lock.
func (s *state) leaveLocked(rank int, took uint64) bool {
	if _, known := s.left[rank]; known || s.err != nil {
		return false
	}
	s.left[rank] = took
	s.notify()
	return true
}

// missing is the error of all-gather number seq if a rank has left before taking part in it. The caller holds the lock.
func (s *state) missing(seq uint64) error {
	for rank, took := range s.left {
		if took <= seq {
			return s.about(rank, "all-gather", ErrLeft)
		}
	}
	return nil
}
