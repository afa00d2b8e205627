package measure

import (
	"context"
	"runtime"
)

// start calls Start until it is taken.
func start(ctx context.Context, d Direction, off, n int) error {
	for w := (waiter{ctx: ctx}); ; {
		if ok, err := d.Start(off, n); ok || err != nil {
			return err
		}
		if err := w.wait(); err != nil {
			return err
		}
	}
}

// finish calls Finished until the oldest is done.
func finish(ctx context.Context, d Direction) (int, error) {
	for w := (waiter{ctx: ctx}); ; {
		if n, done, err := d.Finished(); done || err != nil {
			return n, err
		}
		if err := w.wait(); err != nil {
			return 0, err
		}
	}
}

// waiter is what a loop does when it found nothing.
type waiter struct {
	ctx   context.Context
	looks uint
}

// wait yields, and now and then looks whether to go on.
func (w *waiter) wait() error {
	w.looks++
	if w.looks%256 == 0 && w.ctx.Err() != nil {
		return context.Cause(w.ctx)
	}
	runtime.Gosched()
	return nil
}
