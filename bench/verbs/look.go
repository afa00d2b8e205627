package main

import (
	"context"
	"runtime"
)

// yieldEvery is every how manieth look that finds nothing yields.
const yieldEvery = 256

// looker is what the loops do between two looks.
type looker struct {
	ctx context.Context
	n   uint
}

func (l *looker) again() error {
	l.n++
	if l.n%yieldEvery != 0 {
		return nil
	}
	runtime.Gosched()
	if l.ctx.Err() != nil {
		return context.Cause(l.ctx)
	}
	return nil
}
