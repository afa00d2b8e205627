package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/purerdma/purerdma/bench/advise"
	"github.com/purerdma/purerdma/bench/stats"
)

// target is what a ratio of ours to theirs should be.
type target struct {
	Value   float64
	AtLeast bool // else at most
}

var targets = map[test]target{bandwidth: {0.95, true}, latency: {1.35, false}}

// met says whether a ratio is as it should be.
func (t target) met(ratio float64) bool {
	if t.AtLeast {
		return ratio >= t.Value
	}
	return ratio <= t.Value
}

// neighbours is the figures of both programs, measured one right after the other.
type neighbours struct{ Ours, Theirs figures }

// measureFunc runs one program once.
type measureFunc func(context.Context, test) (figures, error)

// tries is how often a run is made whose figures do not count.
const tries = 5

// inTurn runs both programs n times. Which one is first changes from pair to pair, so that a drift favours neither. It hands on what
// was measured even if it ends early.
func inTurn(ctx context.Context, t test, n int, ours, theirs measureFunc, each func(i int, p neighbours)) ([]neighbours, error) {
	var pairs []neighbours
	for i := range n {
		var p neighbours
		runs := [...]struct {
			name string
			f    measureFunc
			into *figures
		}{{"purerdma", ours, &p.Ours}, {"perftest", theirs, &p.Theirs}}
		if i%2 == 1 {
			runs[0], runs[1] = runs[1], runs[0]
		}
		for _, r := range runs {
			var err error
			for range tries {
				if *r.into, err = r.f(ctx, t); !errors.Is(err, errClock) {
					break
				}
			}
			if err != nil {
				return pairs, fmt.Errorf("pair %d of %d, %s: %w", i+1, n, r.name, err)
			}
		}
		pairs = append(pairs, p)
		each(i, p)
	}
	return pairs, nil
}

// main is the figure that counts for a test.
func (f figures) main(t test) float64 {
	if t == bandwidth {
		return f.MiBps
	}
	return f.Typical
}

// ratios is ours over theirs, pair by pair.
func ratios(pairs []neighbours, of func(figures) float64) []float64 {
	list := make([]float64, len(pairs))
	for i, p := range pairs {
		list[i] = of(p.Ours) / of(p.Theirs)
	}
	return list
}

// verdict is what the pairs of a test say.
type verdict struct {
	Test     test
	Pairs    []neighbours
	Ratio    stats.Interval // of the main figure
	P99Ratio stats.Interval // latency only
	Target   target
}

func judge(t test, pairs []neighbours) verdict {
	v := verdict{Test: t, Pairs: pairs, Target: targets[t]}
	v.Ratio = stats.MedianInterval(ratios(pairs, func(f figures) float64 { return f.main(t) }), advise.Confidence)
	if t == latency {
		v.P99Ratio = stats.MedianInterval(ratios(pairs, func(f figures) float64 { return f.P99 }), advise.Confidence)
	}
	return v
}
