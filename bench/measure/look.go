package measure

import (
	"context"
	"runtime"
)

// Looker is what a loop of its own does between two looks that find nothing: nothing, but for a yield now and then. It is for one
// goroutine.
type Looker struct {
	ctx         context.Context
	every, left int
}

// NewLooker yields after every so many looks, and ends with ctx. How many is part of what a benchmark measures: a yield wakes another
// thread to look for work.
func NewLooker(ctx context.Context, every int) Looker {
	return Looker{ctx: ctx, every: every, left: every}
}

// Under makes another context the one that ends it; the count of looks goes on.
func (l *Looker) Under(ctx context.Context) { l.ctx = ctx }

// Again is called after a look that found nothing. The error is why the context has ended.
func (l *Looker) Again() error {
	if l.left--; l.left > 0 {
		return nil
	}
	l.left = l.every
	runtime.Gosched()
	if l.ctx.Err() != nil {
		return context.Cause(l.ctx)
	}
	return nil
}
