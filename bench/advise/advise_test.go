package advise

import (
	"math"
	"math/rand/v2"
	"strings"
	"testing"
)

func TestChoose(t *testing.T) {
	for _, test := range []struct {
		name string
		cs   []Candidate
		pick int
		sure bool
		why  string // a part of it
	}{
		{"a clear winner", []Candidate{
			{1, false, []float64{10, 11, 10, 10, 11}},
			{4, false, []float64{20, 21, 20, 22, 21}},
			{8, false, []float64{15, 15, 15, 15, 15}},
		}, 1, true, "4 QPs moved more than 1 QP (2.00 times"},
		{"noise only", []Candidate{
			{1, false, []float64{10, 12, 9, 11, 10}},
			{2, false, []float64{11, 10, 12, 10, 11}},
			{4, true, []float64{10, 13, 8, 12, 10.5}},
		}, 0, true, "did not surely move more"},
		{"the fewest are the best", []Candidate{
			{1, false, []float64{12, 12, 12, 12, 12}},
			{2, false, []float64{10, 10, 10, 10, 10}},
		}, 0, true, "no setting had a higher median"},
		{"always ahead, but by less than the tolerance", []Candidate{
			{1, false, []float64{100, 100, 100, 100, 100}},
			{16, false, []float64{101, 102, 101, 102, 101}},
		}, 0, true, "too little to pay"},
		{"rises with each step and then stays", []Candidate{
			{1, false, []float64{10, 10, 10, 10, 10}},
			{2, false, []float64{14, 14, 14, 14, 14}},
			{4, false, []float64{18, 18, 18, 18, 18}},
			{8, false, []float64{18.1, 17.9, 18.2, 18.1, 17.8}},
		}, 2, true, "8 QPs did not surely move more than that"},
		{"in one mood of the machine each: only the pairs show it", []Candidate{
			{1, false, []float64{10, 20, 40, 20, 10}},
			{2, false, []float64{12, 24, 48, 24, 12}},
		}, 1, true, "1.20 times, 1.20 to 1.20"},
		{"the last round disagrees", []Candidate{
			{1, false, []float64{10, 10, 10, 10, 30}},
			{2, false, []float64{20, 20, 20, 20, 20}},
		}, 0, true, "did not surely move more"},
		{"one mode costs more at equal QPs", []Candidate{
			{4, true, []float64{10, 10, 10, 10, 10}},
			{4, false, []float64{10, 10, 10, 10, 10}},
		}, 1, true, ""},
		{"order of the list does not matter", []Candidate{
			{8, false, []float64{10, 10, 10, 10, 10}},
			{2, false, []float64{10, 10, 10, 10, 10}},
		}, 1, true, ""},
		{"four rounds say nothing", []Candidate{
			{1, false, []float64{10, 10, 10, 10}},
			{2, false, []float64{20, 20, 20, 20}},
		}, 0, false, "4 rounds cannot tell"},
		{"one setting", []Candidate{{4, true, []float64{1}}}, 0, false, "the only setting"},
	} {
		t.Run(test.name, func(t *testing.T) {
			a, err := Choose(test.cs, 0.03)
			if err != nil {
				t.Fatal(err)
			}
			if a.Pick != test.pick || a.Sure != test.sure || !strings.Contains(a.Why, test.why) {
				t.Errorf("picked %s, sure %v, because %s\nwant %s, %v, %q", test.cs[a.Pick].Name(), a.Sure, a.Why,
					test.cs[test.pick].Name(), test.sure, test.why)
			}
		})
	}
}

func TestChooseRefuses(t *testing.T) {
	for name, cs := range map[string][]Candidate{
		"nothing":      nil,
		"no round":     {{1, false, nil}},
		"other rounds": {{1, false, []float64{1, 2}}, {2, false, []float64{1}}},
		"NaN":          {{1, false, []float64{math.NaN()}}},
		"zero":         {{1, false, []float64{0}}},
		"infinite":     {{1, false, []float64{math.Inf(1)}}},
	} {
		if a, err := Choose(cs, 0.03); err == nil {
			t.Errorf("%s: chose %+v", name, a)
		}
	}
}

// Settings that do not differ are nearly never told apart, however noisy the machine; settings that differ by half always are.
func TestChooseUnderNoise(t *testing.T) {
	seed := rand.Uint64()
	r := rand.New(rand.NewPCG(seed, 0))
	noisy := func(level float64, mood []float64) []float64 {
		s := make([]float64, len(mood))
		for i := range s {
			s[i] = level * mood[i] * math.Exp(0.05*r.NormFloat64())
		}
		return s
	}
	const experiments = 2000
	wrong, missed := 0, 0
	for range experiments {
		mood := make([]float64, 5)
		for i := range mood {
			mood[i] = math.Exp(0.5 * r.NormFloat64())
		}
		same, err := Choose([]Candidate{{1, false, noisy(10, mood)}, {4, false, noisy(10, mood)}}, 0.03)
		if err != nil {
			t.Fatal(err)
		}
		if same.Pick != 0 {
			wrong++
		}
		differ, err := Choose([]Candidate{{1, false, noisy(10, mood)}, {4, false, noisy(15, mood)}}, 0.03)
		if err != nil {
			t.Fatal(err)
		}
		if differ.Pick != 1 {
			missed++
		}
	}
	if wrong > experiments*5/100 || missed > experiments/100 {
		t.Errorf("of %d: %d told apart what is the same, %d did not see a factor of 1.5 (seed %d)", experiments, wrong, missed, seed)
	}
}
