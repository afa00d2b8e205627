package main

import (
	"context"
	"time"

	"github.com/purerdma/purerdma/bench/measure"
	"github.com/purerdma/purerdma/ibverbs"
)

// stream writes the job's messages, each into the same place as ib_write_bw does, and returns how long it took from the first post
// to the last completion.
func (e *end) stream(ctx context.Context) (time.Duration, error) {
	var wcs [16]ibverbs.WC // as many as perftest polls at once
	look := measure.NewLooker(ctx, looksPerYield)
	wr := ibverbs.SendWR{Op: ibverbs.OpWrite, SGL: []ibverbs.SGE{e.mem.SGE(0, e.job.Size)}, Remote: e.remote()}
	posted, done := 0, 0
	began := time.Now()
	for done < e.job.Iters {
		for posted < e.job.Iters && posted-done < e.job.Depth {
			posted++
			wr.ID, wr.Flags = uint64(posted), 0
			if posted%e.job.CQMod == 0 || posted == e.job.Iters {
				wr.Flags = ibverbs.Signaled
			}
			if _, err := e.qp.PostSend(wr); err != nil {
				return 0, err
			}
		}
		n, err := e.cq.Poll(wcs[:])
		if err != nil {
			return 0, err
		}
		for i := range wcs[:n] {
			if wcs[i].Status != ibverbs.Success {
				return 0, e.cq.Err(&wcs[i])
			}
			done = int(wcs[i].ID) // a signaled write completes those before it
		}
		if n == 0 {
			if err := look.Again(); err != nil {
				return 0, err
			}
		}
	}
	return time.Since(began), nil
}
