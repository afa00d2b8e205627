package main

import (
	"time"

	"github.com/jedib0t/go-pretty/v6/progress"

	"github.com/purerdma/purerdma/bench/cli"
)

// bar shows how far the sweep is, on a terminal only.
type bar struct {
	w     progress.Writer
	t     *progress.Tracker
	ended chan struct{}
}

func newProgress(out cli.IO) *bar {
	if !out.Terminal {
		return &bar{}
	}
	b := &bar{w: progress.NewWriter(), t: &progress.Tracker{Message: "starting"}, ended: make(chan struct{})}
	b.w.SetOutputWriter(out.Err)
	b.w.SetAutoStop(false)
	b.w.SetUpdateFrequency(500 * time.Millisecond) // each redraw takes time from what is measured
	b.w.SetMessageLength(50)
	b.w.SetTrackerLength(30)
	style := progress.StyleBlocks
	style.Visibility.Value = false
	style.Visibility.ETA = true
	b.w.SetStyle(style)
	b.w.AppendTracker(b.t)
	go func() {
		defer close(b.ended)
		b.w.Render()
	}()
	return b
}

// update implements tune.Progress.
func (b *bar) update(done, total int, step string) {
	if b.w == nil {
		return
	}
	b.t.UpdateTotal(int64(total))
	b.t.SetValue(int64(done))
	b.t.UpdateMessage(step)
}

// stop takes the bar away and waits until it is.
func (b *bar) stop() {
	if b.w == nil {
		return
	}
	b.t.MarkAsDone()
	for { // a stop that comes before the rendering has begun is not heard
		b.w.Stop()
		select {
		case <-b.ended:
			return
		case <-time.After(10 * time.Millisecond):
		}
	}
}
