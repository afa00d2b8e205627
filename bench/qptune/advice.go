package main

import (
	"fmt"

	"github.com/purerdma/purerdma/bench/advise"
	"github.com/purerdma/purerdma/bench/plan"
	"github.com/purerdma/purerdma/bench/stats"
	"github.com/purerdma/purerdma/bench/tune"
)

// advice is the setting to use for all sizes, and what would be best for each alone.
type advice struct {
	overall advise.Advice
	bySize  []sizeAdvice
}

type sizeAdvice struct {
	size int
	advise.Advice
}

// recommend chooses by bandwidth. Over all sizes the score of a round is the geometric mean, in which every size weighs the same.
// Advice is an index of the result's settings.
func recommend(r tune.Result, tolerance float64) (*advice, error) {
	if r.Rounds == 0 {
		return nil, fmt.Errorf("no round was completed, so there is nothing to recommend")
	}
	all := make([]advise.Candidate, len(r.Settings))
	for i, s := range r.Settings {
		all[i] = candidate(s, scores(r, i))
	}
	a := &advice{}
	var err error
	if a.overall, err = advise.Choose(all, tolerance); err != nil {
		return nil, err
	}
	for _, size := range sizes(r) {
		one := make([]advise.Candidate, len(r.Settings))
		for _, c := range r.Cases {
			if c.Size == size {
				one[c.Setting] = candidate(r.Settings[c.Setting], c.Bandwidth)
			}
		}
		choice, err := advise.Choose(one, tolerance)
		if err != nil {
			return nil, fmt.Errorf("%d bytes: %w", size, err)
		}
		a.bySize = append(a.bySize, sizeAdvice{size, choice})
	}
	return a, nil
}

func candidate(s plan.Setting, score []float64) advise.Candidate {
	return advise.Candidate{QPs: s.QPs, Split: s.Split, Score: score}
}

// scores is the geometric mean of a setting's bandwidths over all sizes, for each round.
func scores(r tune.Result, setting int) []float64 {
	list := make([]float64, r.Rounds)
	for round := range list {
		var bandwidths []float64
		for _, c := range r.Cases {
			if c.Setting == setting {
				bandwidths = append(bandwidths, c.Bandwidth[round])
			}
		}
		list[round] = stats.GeoMean(bandwidths)
	}
	return list
}

// sizes is the message sizes in the order of the cases.
func sizes(r tune.Result) []int {
	var list []int
	for _, c := range r.Cases {
		if len(list) == 0 || list[len(list)-1] != c.Size {
			list = append(list, c.Size)
		}
	}
	return list
}

// environment is a setting as NCCL's variables, by which jobs are told.
func environment(s plan.Setting) string {
	split := 0
	if s.Split {
		split = 1
	}
	return fmt.Sprintf("NCCL_IB_QPS_PER_CONNECTION=%d NCCL_IB_SPLIT_DATA_ON_QPS=%d", s.QPs, split)
}
