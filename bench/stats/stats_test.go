package stats

import (
	"math"
	"math/rand/v2"
	"testing"
)

func near(a, b float64) bool { return math.Abs(a-b) <= 1e-9*max(1, math.Abs(b)) }

func TestQuantile(t *testing.T) {
	ten := []float64{1, 2, 3, 4, 5, 6, 7, 8, 9, 10}
	for _, test := range []struct {
		xs      []float64
		q, want float64
	}{
		{ten, 0.5, 5}, {ten, 0.99, 10}, {ten, 0.9, 9}, {ten, 0.91, 10}, {ten, 0, 1}, {ten, 1, 10},
		{[]float64{7}, 0.5, 7}, {[]float64{7}, 0.99, 7},
	} {
		if got := Quantile(test.xs, test.q); got != test.want {
			t.Errorf("Quantile(%v, %v) = %v, want %v", test.xs, test.q, got, test.want)
		}
	}
	if got := Quantile(nil, 0.5); !math.IsNaN(got) {
		t.Errorf("Quantile of nothing = %v, want NaN", got)
	}
}

func TestMedian(t *testing.T) {
	xs := []float64{9, 1, 5}
	if got := Median(xs); got != 5 {
		t.Errorf("Median(%v) = %v", xs, got)
	}
	if xs[0] != 9 {
		t.Error("Median changed its argument")
	}
	if got := Median([]float64{4, 1, 3, 2}); got != 2.5 {
		t.Errorf("Median of four = %v, want 2.5", got)
	}
	if got := Median([]float64{math.MaxFloat64, math.MaxFloat64}); math.IsInf(got, 0) {
		t.Error("Median of large numbers overflows")
	}
	if got := Median(nil); !math.IsNaN(got) {
		t.Errorf("Median of nothing = %v, want NaN", got)
	}
}

// The confidences are those of published tables of the sign test's intervals.
func TestMedianInterval(t *testing.T) {
	for _, test := range []struct {
		n          int
		low, high  float64
		confidence float64
	}{
		{1, 1, 1, 0}, {3, 1, 3, 0.75}, {4, 1, 4, 0.875}, {5, 1, 5, 0.9375}, {6, 1, 6, 0.96875}, {7, 1, 7, 0.984375},
		{8, 1, 8, 0.9921875}, {9, 2, 8, 0.9609375}, {10, 2, 9, 0.978515625}, {12, 3, 10, 0.961425781},
	} {
		xs := make([]float64, test.n)
		for i, p := range rand.Perm(test.n) {
			xs[i] = float64(p + 1)
		}
		got := MedianInterval(xs, 0.9375)
		if got.Low != test.low || got.High != test.high || math.Abs(got.Confidence-test.confidence) > 1e-6 {
			t.Errorf("%d samples: %+v, want %v to %v with %v", test.n, got, test.low, test.high, test.confidence)
		}
		if got.Mid != float64(test.n+1)/2 {
			t.Errorf("%d samples: median %v", test.n, got.Mid)
		}
	}
}

// Of many experiments with a skewed distribution the interval holds the true median as often as it says.
func TestMedianIntervalCovers(t *testing.T) {
	seed := rand.Uint64()
	r := rand.New(rand.NewPCG(seed, 0))
	const experiments = 20_000
	for _, n := range []int{5, 9, 15} {
		hits, claimed := 0, 0.0
		for range experiments {
			xs := make([]float64, n)
			for i := range xs {
				xs[i] = r.ExpFloat64() // median ln 2
			}
			iv := MedianInterval(xs, 0.93)
			claimed = iv.Confidence
			if iv.Low <= math.Ln2 && math.Ln2 <= iv.High {
				hits++
			}
		}
		if got := float64(hits) / experiments; math.Abs(got-claimed) > 0.01 {
			t.Errorf("%d samples: holds the median in %.3f of the cases, claims %.3f (seed %d)", n, got, claimed, seed)
		}
	}
}

func TestRatiosAndGeoMean(t *testing.T) {
	rs := Ratios([]float64{2, 9, 5}, []float64{1, 3})
	if len(rs) != 2 || rs[0] != 2 || rs[1] != 3 {
		t.Errorf("Ratios = %v", rs)
	}
	if got := GeoMean([]float64{1, 10, 100}); !near(got, 10) {
		t.Errorf("GeoMean = %v, want 10", got)
	}
	if got := GeoMean(nil); !math.IsNaN(got) {
		t.Errorf("GeoMean of nothing = %v, want NaN", got)
	}
}
