package measure

import (
	"context"
	"runtime"
	"time"
)

// looksPerYield is how many looks that find nothing go by between two yields. A yield wakes another thread to look for work, so it
// is dearer than the look.
const looksPerYield = 16

// looksBeforeNap is how many looks that find nothing come before a nap: what is about to happen is still seen at once.
const looksBeforeNap = 50

// start calls Start until it is taken.
func start(ctx context.Context, nap time.Duration, d Direction, off, n int) error {
	for w := (waiter{ctx: ctx, nap: nap}); ; {
		if ok, err := d.Start(off, n); ok || err != nil {
			return err
		}
		if err := w.wait(); err != nil {
			return err
		}
	}
}

// finish calls Finished until the oldest is done.
func finish(ctx context.Context, nap time.Duration, d Direction) (int, error) {
	for w := (waiter{ctx: ctx, nap: nap}); ; {
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
	nap   time.Duration
	looks uint
}

// wait yields or naps, and now and then looks whether to go on.
func (w *waiter) wait() error {
	w.looks++
	if w.looks%256 == 0 && w.ctx.Err() != nil {
		return context.Cause(w.ctx)
	}
	switch {
	case w.nap > 0 && w.looks > looksBeforeNap:
		time.Sleep(w.nap)
	case w.looks%looksPerYield == 0:
		runtime.Gosched()
	}
	return nil
}

// found starts the count of looks anew.
func (w *waiter) found() { w.looks = 0 }
