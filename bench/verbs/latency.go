package main

import (
	"context"
	"encoding/binary"
	"time"

	"github.com/purerdma/purerdma/bench/measure"
	"github.com/purerdma/purerdma/ibverbs"
	"github.com/purerdma/purerdma/internal/mmio"
	"github.com/purerdma/purerdma/mr"
)

// pingPong writes the number of the round into the peer's memory and waits until the peer has written it into ours, as ib_write_lat
// does: each end looks at the last word of its memory, writes, then polls the completion of its own write. The end that leads gets
// the time between its posts, half of which is the latency. samples has room for one less than there are rounds.
func (e *end) pingPong(ctx context.Context, leads bool, samples []float64) ([]float64, error) {
	at, err := mr.View[uint32](e.buf, e.half+e.job.Size-4)
	if err != nil {
		return nil, err
	}
	data := e.buf.Bytes()[:e.job.Size]
	wr := ibverbs.SendWR{Op: ibverbs.OpWrite, Flags: ibverbs.Signaled, Remote: e.remote()}
	if inlineFor(e.job) > 0 {
		wr.Inline = data
	} else {
		wr.SGL = []ibverbs.SGE{e.mem.SGE(0, e.job.Size)}
	}
	var wcs [1]ibverbs.WC
	look := measure.NewLooker(ctx, looksPerYield)
	var before time.Time
	for round := uint32(1); round <= uint32(e.job.Iters); round++ {
		want := round // of the end that follows: the peer is first
		if leads {
			want = round - 1
		}
		for want > 0 && mmio.LoadAcquire32(at) != want {
			if err := look.Again(); err != nil {
				return nil, err
			}
		}
		if leads {
			now := time.Now()
			if round > 1 {
				samples = append(samples, float64(now.Sub(before).Nanoseconds())/2)
			}
			before = now
		}
		binary.NativeEndian.PutUint32(data[e.job.Size-4:], round)
		if _, err := e.qp.PostSend(wr); err != nil {
			return nil, err
		}
		for {
			n, err := e.cq.Poll(wcs[:])
			if err != nil {
				return nil, err
			}
			if n > 0 {
				break
			}
			if err := look.Again(); err != nil {
				return nil, err
			}
		}
		if wcs[0].Status != ibverbs.Success {
			return nil, e.cq.Err(&wcs[0])
		}
	}
	return samples, nil
}
