package measure

import (
	"context"
	"fmt"
	"time"
)

// Stream is Count messages of Size bytes, of which up to Ring.Slots are in flight.
type Stream struct {
	Dir   Direction
	Ring  Ring
	Size  int
	Count int
	// Nap is how long to sleep at a time while nothing happens, 0 never.
	Nap time.Duration
	// Before, if set, is called with a message's number and offset before it starts, After when it is done and before its slot is
	// used again. An error ends the stream.
	Before, After func(i, off int) error

	started, done int
}

// Fill starts as many messages as now can be: a receiver calls it before it tells the sender to begin.
func (s *Stream) Fill() error {
	for s.started < s.Count && s.started-s.done < s.Ring.Slots {
		off := s.Ring.at(s.started)
		if s.Before != nil {
			if err := s.Before(s.started, off); err != nil {
				return err
			}
		}
		ok, err := s.Dir.Start(off, s.Size)
		if err != nil {
			return fmt.Errorf("message %d of %d: %w", s.started+1, s.Count, err)
		}
		if !ok {
			return nil
		}
		s.started++
	}
	return nil
}

// Run moves all messages and returns how long it took from the first start to the last end. It blocks; the end of ctx ends it.
func (s *Stream) Run(ctx context.Context) (time.Duration, error) {
	begin := time.Now()
	for w := (waiter{ctx: ctx, nap: s.Nap}); s.done < s.Count; {
		if err := s.Fill(); err != nil {
			return 0, err
		}
		n, done, err := s.Dir.Finished()
		if err == nil && done && n != s.Size {
			err = fmt.Errorf("%d bytes, not %d: %w", n, s.Size, ErrSize)
		}
		if err == nil && done && s.After != nil {
			err = s.After(s.done, s.Ring.at(s.done))
		}
		if err == nil && !done {
			err = w.wait()
		}
		if err != nil {
			return 0, fmt.Errorf("message %d of %d: %w", s.done+1, s.Count, err)
		}
		if done {
			s.done++
			w.found()
		}
	}
	return time.Since(begin), nil
}
