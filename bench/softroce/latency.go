package main

import (
	"context"
	"encoding/binary"
	"slices"
	"time"

	"github.com/purerdma/purerdma/bench/measure"
	"github.com/purerdma/purerdma/bench/stats"
	"github.com/purerdma/purerdma/ibverbs"
	"github.com/purerdma/purerdma/internal/mmio"
	"github.com/purerdma/purerdma/mr"
)

// way is one way to send 8 bytes and to wait for 8.
type way struct {
	send func(n uint64) error
	recv func(ctx context.Context, n uint64) error
	end  func() error
}

// pingPong sends 8 bytes and waits for 8, or the other way round. The end that leads gets the median of half the round trips in µs.
func (e *end) pingPong(ctx context.Context, m mode) (float64, error) {
	var w way
	switch m {
	case polled:
		w = e.byPolling()
	case waited, paused:
		w = e.byWaiting()
	case udpPolled:
		w = e.ref.byPolling()
	default:
		w = e.ref.byWaiting()
	}
	count, wait := pingPongs, time.Duration(0)
	if m == paused || m == udpPaused {
		count, wait = pausedPingPongs, pause
	}
	samples := make([]float64, 0, count)
	for range count {
		e.rounds++
		if !e.leads {
			if err := w.recv(ctx, e.rounds); err != nil {
				return 0, err
			}
			if err := w.send(e.rounds); err != nil {
				return 0, err
			}
			continue
		}
		began := time.Now()
		for time.Since(began) < wait {
		}
		began = time.Now()
		if err := w.send(e.rounds); err != nil {
			return 0, err
		}
		if err := w.recv(ctx, e.rounds); err != nil {
			return 0, err
		}
		samples = append(samples, float64(time.Since(began).Nanoseconds())/2e3)
	}
	slices.Sort(samples)
	if err := w.end(); err != nil {
		return 0, err
	}
	return stats.Quantile(samples, 0.5), nil
}

// byPolling writes the number into the peer's memory, and looks at its own until the peer has written there. The polls of the CQ take the
// completions of the writes, and move the device on.
func (e *end) byPolling() way {
	in, _ := mr.View[uint64](e.buf, wordsAt)
	data := e.buf.Bytes()[wordsAt+64 : wordsAt+72]
	wrs := []ibverbs.SendWR{{Op: ibverbs.OpWrite, Flags: ibverbs.Signaled, Inline: data, Remote: e.remote(wordsAt)}}
	w := &writes{e: e, look: measure.NewLooker(context.Background(), looksPerYield), limit: depth}
	return way{
		send: func(n uint64) error {
			binary.NativeEndian.PutUint64(data, n)
			return w.post(e.qps[qpLatency], wrs...)
		},
		recv: func(ctx context.Context, n uint64) error {
			w.look.Under(ctx)
			for mmio.LoadAcquire64(in) != n {
				if err := w.poll(); err != nil {
					return err
				}
			}
			return nil
		},
		end: w.drain,
	}
}

// byWaiting writes with immediate data and waits for the completion of the peer's write.
func (e *end) byWaiting() way {
	data := e.buf.Bytes()[wordsAt+64 : wordsAt+72]
	w := &writes{e: e, look: measure.NewLooker(context.Background(), looksPerYield), limit: 16}
	var wcs [4]ibverbs.WC
	return way{
		send: func(n uint64) error {
			binary.NativeEndian.PutUint64(data, n)
			return w.post(e.qps[qpLatency], ibverbs.SendWR{Op: ibverbs.OpWriteWithImm, Flags: ibverbs.Signaled, Inline: data, Remote: e.remote(wordsAt), Imm: uint32(n)})
		},
		recv: func(ctx context.Context, n uint64) error {
			w.look.Under(ctx)
			got, err := e.events.Wait(ctx, wcs[:])
			if err != nil {
				return err
			}
			for i := range wcs[:got] {
				if wcs[i].Status != ibverbs.Success {
					return e.events.Err(&wcs[i])
				}
			}
			return e.offer(got)
		},
		end: w.drain,
	}
}
