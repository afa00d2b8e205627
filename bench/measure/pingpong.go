package measure

import (
	"context"
	"fmt"
	"time"
)

// PingPong is Count messages of Size bytes each way, one at a time.
type PingPong struct {
	Send, Recv       Direction
	SendOff, RecvOff int
	Size, Count      int
	// Nap is how long to sleep at a time while nothing happens, 0 never.
	Nap time.Duration

	offered int
}

// Offer offers the buffer for the first message: both ends call it, and know that the other has, before either runs.
func (p *PingPong) Offer(ctx context.Context) error {
	if p.offered >= p.Count {
		return nil
	}
	if err := start(ctx, p.Nap, p.Recv, p.RecvOff, p.Size); err != nil {
		return fmt.Errorf("round trip %d of %d, offering a buffer: %w", p.offered+1, p.Count, err)
	}
	p.offered++
	return nil
}

// Lead sends first. It appends to samples half of each round trip in nanoseconds and returns it.
func (p *PingPong) Lead(ctx context.Context, samples []float64) ([]float64, error) {
	for i := range p.Count {
		begin := time.Now()
		if err := p.send(ctx, i); err != nil {
			return samples, err
		}
		if err := p.receive(ctx, i); err != nil {
			return samples, err
		}
		samples = append(samples, float64(time.Since(begin).Nanoseconds())/2)
		if err := p.prepare(ctx, i); err != nil {
			return samples, err
		}
	}
	return samples, nil
}

// Follow answers each message.
func (p *PingPong) Follow(ctx context.Context) error {
	for i := range p.Count {
		if err := p.receive(ctx, i); err != nil {
			return err
		}
		// The next buffer is offered before the answer goes out, so that whoever leads finds it.
		if err := p.Offer(ctx); err != nil {
			return err
		}
		if err := p.send(ctx, i); err != nil {
			return err
		}
		if _, err := finish(ctx, p.Nap, p.Send); err != nil {
			return p.failed(i, "sending", err)
		}
	}
	return nil
}

// prepare is what need not be in the round trip: the end of the send, and the buffer for the next answer.
func (p *PingPong) prepare(ctx context.Context, i int) error {
	if _, err := finish(ctx, p.Nap, p.Send); err != nil {
		return p.failed(i, "sending", err)
	}
	return p.Offer(ctx)
}

func (p *PingPong) send(ctx context.Context, i int) error {
	if err := start(ctx, p.Nap, p.Send, p.SendOff, p.Size); err != nil {
		return p.failed(i, "sending", err)
	}
	return nil
}

func (p *PingPong) receive(ctx context.Context, i int) error {
	n, err := finish(ctx, p.Nap, p.Recv)
	if err == nil && n != p.Size {
		err = fmt.Errorf("%d bytes, not %d: %w", n, p.Size, ErrSize)
	}
	if err != nil {
		return p.failed(i, "receiving", err)
	}
	return nil
}

func (p *PingPong) failed(i int, what string, err error) error {
	return fmt.Errorf("round trip %d of %d, %s: %w", i+1, p.Count, what, err)
}
