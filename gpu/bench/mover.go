//go:build linux

package main

import (
	"context"
	"fmt"
	"runtime"
	"sync/atomic"

	"github.com/purerdma/purerdma/gpu"
	"github.com/purerdma/purerdma/gpu/copies"
	"github.com/purerdma/purerdma/internal/cause"
	"github.com/purerdma/purerdma/mr"
	"github.com/purerdma/purerdma/transport/driver"
)

// mover moves the data of one end between the GPU's memory and the slots of SIMPLE's buffer by copies, several steps at a time. Without an
// engine it moves nothing and counts: what is left is the cost of the connection.
type mover struct {
	conn   *driver.Conn
	head   *driver.SendMem
	tail   *driver.RecvMem
	engine *copies.Engine
	step   int // bytes
	first  uint64
}

func newMover(c *driver.Conn, e *copies.Engine) (*mover, error) {
	m := &mover{conn: c, engine: e}
	var err error
	if m.head, err = mr.View[driver.SendMem](c.SendMem, 0); err != nil {
		return nil, err
	}
	if m.tail, err = mr.View[driver.RecvMem](c.RecvMem, 0); err != nil {
		return nil, err
	}
	if b := c.Buffers[driver.Simple]; b != nil {
		m.step = b.Len() / driver.Steps
	} else {
		m.step = c.GPU.Steps[driver.Simple]
	}
	return m, nil
}

// steps is how many a message of n bytes takes.
func (m *mover) steps(n int) int { return max(1, (n+m.step-1)/m.step) }

// send is the producer of the n bytes at p. It returns when all are in the buffer.
func (m *mover) send(ctx context.Context, p gpu.Ptr, n int) error {
	return m.move(ctx, n, func(at uint64) bool { return atomic.LoadUint64(&m.head.Head)+driver.Steps > at },
		func(slot, off, size int) (uint64, bool, error) {
			return m.engine.Start(m.slot(slot), p+gpu.Ptr(off), size)
		},
		func(at uint64, size int) {
			if m.conn.FIFO {
				atomic.StoreInt64(&m.tail.ConnFIFO[at%driver.Steps].Size, int64(size))
			}
			atomic.StoreUint64(&m.tail.Tail, at+1)
		})
}

// recv is the consumer.
func (m *mover) recv(ctx context.Context, p gpu.Ptr, n int) error {
	atomic.StoreUint64(&m.head.Head, m.first)
	return m.move(ctx, n, func(at uint64) bool { return atomic.LoadUint64(&m.tail.Tail) > at },
		func(slot, off, size int) (uint64, bool, error) {
			return m.engine.Start(p+gpu.Ptr(off), m.slot(slot), size)
		},
		func(at uint64, _ int) { atomic.StoreUint64(&m.head.Head, at+1) })
}

func (m *mover) slot(i int) gpu.Ptr {
	return m.conn.GPU.Buffers[driver.Simple] + gpu.Ptr(i*m.step)
}

// move starts the copy of each step when it may, and tells of each when it is done.
func (m *mover) move(ctx context.Context, n int, may func(step uint64) bool, start func(slot, off, size int) (number uint64, ok bool, err error),
	tell func(step uint64, size int)) error {
	steps := m.steps(n)
	var numbers [driver.Steps]uint64 // of the copies
	started, done, idle := 0, 0, 0
	size := func(i int) int { return min(m.step, n-i*m.step) }
	for done < steps {
		before := started + done
		for started < steps && started < done+driver.Steps && may(m.first+uint64(started)) {
			slot := int((m.first + uint64(started)) % driver.Steps)
			if m.engine != nil && n > 0 {
				number, ok, err := start(slot, started*m.step, size(started))
				if err != nil {
					return err
				}
				if !ok {
					break
				}
				numbers[slot] = number
			}
			started++
		}
		var copies uint64
		if m.engine != nil && done < started {
			var err error
			if copies, err = m.engine.Done(); err != nil {
				return err
			}
		}
		for done < started && numbers[(m.first+uint64(done))%driver.Steps] <= copies {
			tell(m.first+uint64(done), size(done))
			done++
		}
		if started+done > before {
			idle = 0
			continue
		}
		if idle++; idle%1024 == 0 && ctx.Err() != nil {
			return fmt.Errorf("%d of %d steps are done: %w", done, steps, cause.Of(ctx))
		}
		runtime.Gosched()
	}
	m.first += uint64(steps)
	return nil
}
