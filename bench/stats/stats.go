// Package stats is the few statistics that a benchmark on a shared machine can stand on: order statistics, and what follows
// from them without assuming how the noise is distributed.
//
// Means and standard deviations are left out on purpose. One preemption makes a mean lie; a median needs half the samples to lie.
package stats

import (
	"math"
	"slices"
)

// Quantile is the nearest-rank quantile of samples in ascending order: the smallest sample with at least the share q of all at or
// below it. It is always one of the samples. Without samples it is NaN.
func Quantile(sorted []float64, q float64) float64 {
	n := len(sorted)
	if n == 0 {
		return math.NaN()
	}
	rank := int(math.Ceil(q * float64(n)))
	return sorted[min(max(rank, 1), n)-1]
}

// Median is the middle sample, or the mean of the two middle ones. It leaves xs as it is. Without samples it is NaN.
func Median(xs []float64) float64 {
	n := len(xs)
	if n == 0 {
		return math.NaN()
	}
	s := slices.Sorted(slices.Values(xs))
	return s[n/2]/2 + s[(n-1)/2]/2
}

// Interval is where the true median lies: between Low and High with the probability Confidence. Mid is the median of the samples.
type Interval struct{ Low, Mid, High, Confidence float64 }

// MedianInterval is the narrowest interval between two samples, the k-th from below and the k-th from above, that holds the true
// median with at least the confidence asked for. How the samples are distributed does not matter, only that they are independent:
// each lies below the true median with probability one half, so the number below it is binomial.
//
// Where even the range of all samples does not reach that confidence (0.93 takes five samples), it is that range with the
// confidence it has.
func MedianInterval(xs []float64, confidence float64) Interval {
	n := len(xs)
	if n == 0 {
		return Interval{Low: math.NaN(), Mid: math.NaN(), High: math.NaN()}
	}
	s := slices.Sorted(slices.Values(xs))
	best := Interval{Low: s[0], Mid: Median(s), High: s[n-1], Confidence: 1 - 2*atMost(n, 0)}
	for k := 2; k <= n/2; k++ {
		c := 1 - 2*atMost(n, k-1)
		if c < confidence {
			break
		}
		best.Low, best.High, best.Confidence = s[k-1], s[n-k], c
	}
	return best
}

// atMost is the probability that of n fair coins at most k show heads.
func atMost(n, k int) float64 {
	term := math.Pow(0.5, float64(n))
	sum := term
	for i := 1; i <= k; i++ {
		term *= float64(n-i+1) / float64(i)
		sum += term
	}
	return sum
}

// Ratios is a over b, pair by pair. Pairs that were measured next to each other share the machine's mood, which so cancels out.
// The shorter slice says how many.
func Ratios(a, b []float64) []float64 {
	rs := make([]float64, min(len(a), len(b)))
	for i := range rs {
		rs[i] = a[i] / b[i]
	}
	return rs
}

// GeoMean is the geometric mean of positive numbers: the right mean of ratios and of values of different magnitude. Without
// numbers it is NaN.
func GeoMean(xs []float64) float64 {
	if len(xs) == 0 {
		return math.NaN()
	}
	sum := 0.0
	for _, x := range xs {
		sum += math.Log(x)
	}
	return math.Exp(sum / float64(len(xs)))
}
