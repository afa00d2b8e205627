// Package copies moves data by a GPU's copy engines, several copies at a time, and
// tells when each is done without waiting.
package copies

import (
	"errors"
	"fmt"

	"github.com/purerdma/purerdma/gpu"
)

// Engine is one stream of copies. They are done in the order in which they were
// started. It is for one goroutine; made with the Context that Do gives, it saves
// making that current for each call, and is to be closed before Do ends.
type Engine struct {
	c       gpu.Context
	stream  gpu.Stream
	depth   int
	group   int // copies that share an event where more are in flight, since an event costs the processor as much as a small copy
	marks   []mark
	first   uint64 // mark that is not reached, and next one that is not set: numbers of marks
	next    uint64
	started uint64
	done    uint64
	err     error
}

// mark is an event behind the copies up to a number.
type mark struct {
	event gpu.Event
	upTo  uint64
}

// New makes an engine that has up to depth copies in flight.
func New(c gpu.Context, depth int) (*Engine, error) {
	if depth < 1 {
		return nil, fmt.Errorf("%d copies in flight, at least 1", depth)
	}
	e := &Engine{c: c, depth: depth, group: max(1, depth/4)}
	var err error
	if e.stream, err = c.NewStream(); err != nil {
		return nil, err
	}
	for range (depth + e.group - 1) / e.group {
		ev, err := c.NewEvent()
		if err != nil {
			return nil, errors.Join(err, e.Close())
		}
		e.marks = append(e.marks, mark{event: ev})
	}
	return e, nil
}

// Start starts a copy of n bytes. Its number is the count of copies started with
// it: it is done when Done has reached that. ok is false while the depth is in
// flight. An error is final for the engine: what is in flight then is not known.
func (e *Engine) Start(dst, src gpu.Ptr, n int) (number uint64, ok bool, err error) {
	if e.err != nil {
		return 0, false, e.err
	}
	if e.started-e.done == uint64(e.depth) {
		if _, err := e.Done(); err != nil || e.started-e.done == uint64(e.depth) {
			return 0, false, err
		}
	}
	if err := e.c.Copy(dst, src, n, e.stream); err != nil {
		return 0, false, e.fail(err)
	}
	e.started++
	if e.started-e.marked() >= uint64(e.group) {
		if err := e.mark(); err != nil {
			return 0, false, err
		}
	}
	return e.started, true, nil
}

// marked is the last copy that has an event behind it.
func (e *Engine) marked() uint64 {
	if e.next == e.first {
		return e.done
	}
	return e.at(e.next - 1).upTo
}

func (e *Engine) at(n uint64) *mark { return &e.marks[n%uint64(len(e.marks))] }

// mark sets an event behind all copies, if one is free.
func (e *Engine) mark() error {
	if e.next-e.first == uint64(len(e.marks)) {
		return nil
	}
	m := e.at(e.next)
	if err := e.c.Record(m.event, e.stream); err != nil {
		return e.fail(err)
	}
	m.upTo = e.started
	e.next++
	return nil
}

// Done is how many copies are done. It does not wait.
func (e *Engine) Done() (uint64, error) {
	for e.err == nil && e.done < e.started {
		if e.next == e.first {
			if err := e.mark(); err != nil {
				return e.done, err
			}
		}
		done, err := e.c.Done(e.at(e.first).event)
		if err != nil {
			return e.done, e.fail(err)
		}
		if !done {
			break
		}
		e.done = e.at(e.first).upTo
		e.first++
	}
	return e.done, e.err
}

// Wait waits until all that was started is done.
func (e *Engine) Wait() error {
	if e.err == nil {
		if err := e.c.Synchronize(e.stream); err != nil {
			return e.fail(err)
		}
	}
	_, err := e.Done()
	return err
}

func (e *Engine) fail(err error) error {
	e.err = fmt.Errorf("copy on GPU %d: %w", e.c.Device().Index, err)
	return e.err
}

// Close waits for what is in flight and frees the engine.
func (e *Engine) Close() error {
	var errs []error
	if e.started > e.done && e.err == nil {
		errs = append(errs, e.Wait())
	}
	for _, m := range e.marks {
		errs = append(errs, e.c.CloseEvent(m.event))
	}
	return errors.Join(append(errs, e.c.CloseStream(e.stream))...)
}
