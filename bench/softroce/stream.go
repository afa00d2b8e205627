package main

import (
	"context"
	"time"

	"github.com/purerdma/purerdma/bench/measure"
	"github.com/purerdma/purerdma/ibverbs"
	"github.com/purerdma/purerdma/qp"
)

// messagesInFlight is how many large writes are posted at once: more than the device sends without an acknowledgement.
const messagesInFlight = 16

// stream writes the message into the peer's memory for a slice's time, and returns GB/s from the first post to the last completion.
func (e *end) stream(ctx context.Context, q *qp.QP) (float64, error) {
	wr := ibverbs.SendWR{Op: ibverbs.OpWrite, Flags: ibverbs.Signaled, SGL: []ibverbs.SGE{e.mem.SGE(fromAt, message)}, Remote: e.remote(toAt)}
	w := writes{e: e, look: measure.NewLooker(ctx, looksPerYield), limit: messagesInFlight}
	began := time.Now()
	for time.Since(began) < e.Slice {
		if err := w.post(q, wr); err != nil {
			return 0, err
		}
	}
	if err := w.drain(); err != nil {
		return 0, err
	}
	return float64(w.done) * message / float64(time.Since(began).Nanoseconds()), nil
}

// small writes 8 bytes at a time over the queue pairs by turns for a slice's time, and returns the ns for a message.
func (e *end) small(ctx context.Context, qps []*qp.QP) (float64, error) {
	data := e.buf.Bytes()[fromAt : fromAt+8]
	wr := ibverbs.SendWR{Op: ibverbs.OpWrite, Flags: ibverbs.Signaled, Inline: data, Remote: e.remote(wordsAt + 1024)}
	w := writes{e: e, look: measure.NewLooker(ctx, looksPerYield), limit: depth}
	began := time.Now()
	for i := 0; i%64 != 0 || time.Since(began) < e.Slice; i++ {
		if err := w.post(qps[i%len(qps)], wr); err != nil {
			return 0, err
		}
	}
	if err := w.drain(); err != nil {
		return 0, err
	}
	return float64(time.Since(began).Nanoseconds()) / float64(w.done), nil
}

// writes are requests of which some are under way.
type writes struct {
	e            *end
	look         measure.Looker
	limit        int
	posted, done int
	wcs          [16]ibverbs.WC
}

// post posts one when fewer than the limit are under way.
func (w *writes) post(q *qp.QP, wrs ...ibverbs.SendWR) error {
	for w.posted-w.done >= w.limit {
		if err := w.poll(); err != nil {
			return err
		}
	}
	w.posted += len(wrs)
	_, err := q.PostSend(wrs...)
	return err
}

func (w *writes) drain() error {
	for w.done < w.posted {
		if err := w.poll(); err != nil {
			return err
		}
	}
	return nil
}

func (w *writes) poll() error {
	n, err := w.e.cq.Poll(w.wcs[:])
	if err != nil {
		return err
	}
	for i := range w.wcs[:n] {
		if w.wcs[i].Status != ibverbs.Success {
			return w.e.cq.Err(&w.wcs[i])
		}
	}
	if w.done += n; n == 0 {
		return w.look.Again()
	}
	return nil
}
