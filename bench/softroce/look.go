package main

import (
	"context"
	"runtime"
)

// looksPerYield is how many looks that find nothing go by between two yields.
const looksPerYield = 64

// looker is what the loops do between two looks.
type looker struct {
	ctx context.Context
	n   uint
}

func (l *looker) again() error {
	l.n++
	if l.n%looksPerYield != 0 {
		return nil
	}
	runtime.Gosched()
	if l.ctx.Err() != nil {
		return context.Cause(l.ctx)
	}
	return nil
}
