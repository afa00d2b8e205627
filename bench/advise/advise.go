// Package advise chooses among settings that were measured in the same rounds, and says why.
//
// The rule: the cheapest setting than which no other is faster beyond doubt. Faster beyond doubt means that, taken round by round,
// the confidence interval of the ratio lies above 1 and its median above 1 by more than the tolerance. Queue pairs cost memory,
// NIC cache and set-up time, so they have to earn it; where noise hides the difference, fewest win.
package advise

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"github.com/purerdma/purerdma/bench/stats"
)

// Confidence is how sure a difference must be: what five rounds that all agree can give.
const Confidence = 0.93

// Candidate is a setting with one score for each round, larger is better. Round r of all candidates was measured at about the same time.
type Candidate struct {
	QPs   int
	Split bool
	Score []float64
}

// Name is how people call the setting: "1 QP", "4 QPs", "4 QPs split".
func (c Candidate) Name() string {
	switch {
	case c.QPs == 1:
		return "1 QP"
	case c.Split:
		return fmt.Sprintf("%d QPs split", c.QPs)
	}
	return fmt.Sprintf("%d QPs", c.QPs)
}

// Advice is the choice. Pick and Best are indices of the candidates: the setting to use, and the one with the highest median.
type Advice struct {
	Pick, Best int
	// Lead is by what factor Best is ahead of Pick, over the rounds.
	Lead stats.Interval
	// Gain is by what factor Pick is ahead of the cheapest candidate.
	Gain stats.Interval
	// Sure is false where there were too few rounds to tell anything apart.
	Sure bool
	Why  string
}

// Choose applies the rule. tolerance is the gain not worth paying for, 0.03 for 3 %. Every candidate needs the same number of
// rounds, at least one, and positive finite scores.
func Choose(cs []Candidate, tolerance float64) (Advice, error) {
	if err := check(cs); err != nil {
		return Advice{}, err
	}
	best := 0
	for i := range cs {
		if stats.Median(cs[i].Score) > stats.Median(cs[best].Score) {
			best = i
		}
	}
	byCost := make([]int, len(cs))
	for i := range byCost {
		byCost[i] = i
	}
	slices.SortStableFunc(byCost, func(a, b int) int { return cost(cs[a], cs[b]) })

	a := Advice{Pick: best, Best: best, Sure: true}
	for _, i := range byCost {
		lead := stats.MedianInterval(stats.Ratios(cs[best].Score, cs[i].Score), Confidence)
		a.Sure = lead.Confidence >= Confidence
		if a.Sure && lead.Low > 1 && lead.Mid > 1+tolerance {
			continue
		}
		a.Pick = i
		break
	}
	cheapest := byCost[0]
	a.Lead = stats.MedianInterval(stats.Ratios(cs[best].Score, cs[a.Pick].Score), Confidence)
	a.Gain = stats.MedianInterval(stats.Ratios(cs[a.Pick].Score, cs[cheapest].Score), Confidence)
	a.Why = why(cs, a, cheapest)
	return a, nil
}

// cost orders by what a setting takes: queue pairs first, then whether a message needs all of them.
func cost(a, b Candidate) int {
	if c := cmp.Compare(a.QPs, b.QPs); c != 0 || a.Split == b.Split {
		return c
	}
	if a.Split {
		return 1
	}
	return -1
}

func check(cs []Candidate) error {
	if len(cs) == 0 {
		return fmt.Errorf("nothing was measured")
	}
	for _, c := range cs {
		if len(c.Score) == 0 || len(c.Score) != len(cs[0].Score) {
			return fmt.Errorf("%s has %d rounds, %s has %d", c.Name(), len(c.Score), cs[0].Name(), len(cs[0].Score))
		}
		for _, s := range c.Score {
			if !(s > 0) || math.IsInf(s, 1) {
				return fmt.Errorf("%s has the score %v", c.Name(), s)
			}
		}
	}
	return nil
}

func why(cs []Candidate, a Advice, cheapest int) string {
	pick, best, first, rounds := cs[a.Pick].Name(), cs[a.Best].Name(), cs[cheapest].Name(), len(cs[a.Pick].Score)
	switch {
	case len(cs) == 1:
		return "it is the only setting that was measured"
	case !a.Sure:
		return fmt.Sprintf("%d %s cannot tell settings apart (5 are needed), so the one with the fewest QPs", rounds, plural(rounds, "round"))
	case a.Pick == cheapest && a.Best == a.Pick:
		return fmt.Sprintf("no setting had a higher median in %d rounds, and it has the fewest QPs", rounds)
	case a.Pick == cheapest && a.Lead.Low > 1:
		return fmt.Sprintf("%s moved more, but too little to pay for the QPs (%s)", best, factor(a.Lead, rounds))
	case a.Pick == cheapest:
		return fmt.Sprintf("%s had the highest median, but did not surely move more (%s); fewest QPs cost least", best, factor(a.Lead, rounds))
	}
	reason := fmt.Sprintf("%s moved more than %s (%s)", pick, first, factor(a.Gain, rounds))
	if a.Gain.Low <= 1 { // the best was surely ahead of the cheapest, and the pick is as good as the best
		reason = fmt.Sprintf("%s surely moved more than %s, and %s as much as that", best, first, pick)
	}
	if a.Pick == a.Best {
		return reason + ", and every cheaper setting surely less"
	}
	return fmt.Sprintf("%s; %s did not surely move more than that (%s)", reason, best, factor(a.Lead, rounds))
}

func factor(iv stats.Interval, rounds int) string {
	return fmt.Sprintf("%.2f times, %.2f to %.2f over %d rounds", iv.Mid, iv.Low, iv.High, rounds)
}

func plural(n int, word string) string {
	if n == 1 {
		return word
	}
	return word + "s"
}
