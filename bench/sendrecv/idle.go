package main

import (
	"context"
	"errors"
	"time"

	"github.com/purerdma/purerdma/internal/cause"
)

// rested is what a job uses that nobody sends or receives in.
type rested struct {
	Time float64 `json:"time"` // of the measurement, in seconds
	Used float64 `json:"used"` // processor time of all ranks, in seconds
}

// core is the part of one processor core that was used, in percent.
func (r rested) core() float64 { return 100 * r.Used / r.Time }

// settling is left out: what was under way when the last message ended.
const settling = 200 * time.Millisecond

// rest sends one small message each way between all, waits, and says what that took.
func (m *member) rest(ctx context.Context) error {
	if _, ok := processorTime(); !ok {
		return errors.New("--idle: this system does not tell a process's processor time")
	}
	b := make([]byte, m.size)
	for peer := range m.size {
		m.group.Send(peer, b[:1])
		m.group.Recv(peer, b[peer:peer+1])
	}
	if err := m.together(ctx); err != nil {
		return err
	}
	if err := m.job.Barrier(ctx); err != nil {
		return err
	}
	if err := pause(ctx, settling); err != nil {
		return err
	}
	begun := time.Now()
	before, _ := processorTime()
	if err := pause(ctx, m.t.idle); err != nil {
		return err
	}
	after, _ := processorTime()
	all, err := gather(ctx, m.job, rested{time.Since(begun).Seconds(), (after - before).Seconds()})
	if err != nil {
		return err
	}
	sum := rested{Time: all[0].Time}
	for _, one := range all {
		sum.Time = min(sum.Time, one.Time)
		sum.Used += one.Used
	}
	m.t.results.Idle = &sum
	return nil
}

func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return cause.Of(ctx)
	}
}
