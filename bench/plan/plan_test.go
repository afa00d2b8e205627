package plan

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestDefaultsAreGood(t *testing.T) {
	for _, software := range []bool{false, true} {
		s := Default(software)
		if err := s.Check(); err != nil {
			t.Errorf("software %v: %v", software, err)
		}
		if got := len(s.Settings()); got != 9 {
			t.Errorf("software %v: %d settings, want 9: {1, 2, 4, 8, 16} in two modes, 1 once", software, got)
		}
		if !slices.Contains(s.Sizes, 1<<20) || !slices.Contains(s.QPs, 1) {
			t.Errorf("software %v: without one QP at 1 MiB, where the known drop is", software)
		}
	}
}

func TestCheck(t *testing.T) {
	for _, test := range []struct {
		name   string
		change func(*Spec)
		want   string
	}{
		{"QPs 0", func(s *Spec) { s.QPs = []int{1, 0} }, "QPs per connection 0"},
		{"QPs 129", func(s *Spec) { s.QPs = []int{129} }, "QPs per connection 129"},
		{"no QPs", func(s *Spec) { s.QPs = nil }, "no QPs per connection"},
		{"twice", func(s *Spec) { s.Sizes = []int{8, 9, 8} }, "8 is listed twice"},
		{"size 0", func(s *Spec) { s.Sizes = []int{0} }, "message size 0"},
		{"size", func(s *Spec) { s.Sizes = []int{1<<30 + 1} }, "message size 1073741825"},
		{"buffer", func(s *Spec) { s.Sizes = []int{1 << 28}; s.Depth = 8 }, "lower the depth"},
		{"depth", func(s *Spec) { s.Depth = 0 }, "depth 0"},
		{"deep", func(s *Spec) { s.Depth = 129 }, "depth 129"},
		{"rounds", func(s *Spec) { s.Rounds = 0 }, "rounds 0"},
		{"iterations", func(s *Spec) { s.Iters = -1 }, "iterations -1"},
		{"modes", func(s *Spec) { s.Modes = "maybe" }, `"maybe"`},
		{"budget", func(s *Spec) { s.Budget = time.Millisecond }, "budget 1ms"},
		{"two at once", func(s *Spec) { s.Depth = 0; s.Modes = "" }, "split mode"},
	} {
		s := Default(false)
		test.change(&s)
		err := s.Check()
		if err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: %v, want %q", test.name, err, test.want)
		}
	}
}

func TestSettings(t *testing.T) {
	for _, test := range []struct {
		modes Modes
		want  []Setting
	}{
		{Both, []Setting{{1, false}, {2, false}, {2, true}, {4, false}, {4, true}}},
		{On, []Setting{{1, true}, {2, true}, {4, true}}},
		{Off, []Setting{{1, false}, {2, false}, {4, false}}},
	} {
		s := Spec{QPs: []int{4, 1, 2}, Modes: test.modes, Sizes: []int{16, 8}}
		if got := s.Settings(); !slices.Equal(got, test.want) {
			t.Errorf("%s: %v, want %v", test.modes, got, test.want)
		}
		cases := s.Cases()
		if len(cases) != 2*len(test.want) || cases[0] != (Case{0, 8}) || cases[len(cases)-1] != (Case{len(test.want) - 1, 16}) {
			t.Errorf("%s: cases %v", test.modes, cases)
		}
	}
}

func TestOrder(t *testing.T) {
	seed := rand.Uint64()
	first := Order(30, seed, 0)
	if !slices.Equal(first, Order(30, seed, 0)) {
		t.Error("the order of a round is not the same for the same seed")
	}
	if slices.Equal(first, Order(30, seed, 1)) || slices.Equal(first, Order(30, seed+1, 0)) {
		t.Errorf("two rounds or seeds have the same order (seed %d)", seed)
	}
	slices.Sort(first)
	for i, x := range first {
		if i != x {
			t.Fatalf("case %d is missing or there twice", i)
		}
	}
}

// took is what a round of all cases takes with these counts, reckoned anew.
func took(ts []Timing, f Fitted, rounds int) time.Duration {
	var sum time.Duration
	for i, t := range ts {
		sum += 2*t.Overhead + time.Duration(f.Counts[i].Messages)*t.Message + time.Duration(f.Counts[i].RoundTrips)*t.RoundTrip
	}
	return sum * time.Duration(rounds)
}

func TestFit(t *testing.T) {
	emulated := []Timing{ // what Soft-RoCE in emulation does
		{300 * time.Microsecond, 2 * time.Millisecond, 5 * time.Millisecond},
		{900 * time.Microsecond, 3 * time.Millisecond, 5 * time.Millisecond},
		{6 * time.Millisecond, 15 * time.Millisecond, 5 * time.Millisecond},
		{80 * time.Millisecond, 170 * time.Millisecond, 5 * time.Millisecond},
	}
	hardware := []Timing{{300, 4000, 100_000}, {25_000, 60_000, 100_000}}
	for _, test := range []struct {
		name   string
		ts     []Timing
		iters  int
		left   time.Duration
		within bool
	}{
		{"emulated, roomy", emulated, 0, 2 * time.Minute, true},
		{"emulated, tight", emulated, 0, 15 * time.Second, true},
		{"emulated, hopeless", emulated, 0, time.Second, false},
		{"hardware", hardware, 0, time.Minute, true},
		{"hardware, short", hardware, 0, time.Second, true},
		{"fixed", emulated, 10, time.Minute, true},
		{"no time left", emulated, 0, 0, false},
		{"instant", []Timing{{}}, 0, time.Second, true},
	} {
		t.Run(test.name, func(t *testing.T) {
			f := Fit(test.ts, 4, 5, test.iters, test.left)
			if got := took(test.ts, f, 5); got != f.Total && (got-f.Total).Abs() > time.Millisecond {
				t.Errorf("says %v, takes %v", f.Total, got)
			}
			if within := f.Total <= test.left*11/10; within != test.within {
				t.Errorf("%v of %v: %+v", f.Total, test.left, f.Counts)
			}
			for i, c := range f.Counts {
				if test.iters > 0 && c.Messages != test.iters {
					t.Errorf("case %d: %d messages, %d were asked for", i, c.Messages, test.iters)
				}
				if c.Messages < 4 || c.RoundTrips < 2 {
					t.Errorf("case %d: %+v", i, c)
				}
			}
		})
	}
	roomy := Fit(emulated, 4, 5, 0, 2*time.Minute)
	if roomy.Total < 90*time.Second {
		t.Errorf("uses %v of two minutes: %+v", roomy.Total, roomy.Counts)
	}
}
