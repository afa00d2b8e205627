// Package plan is what a sweep measures, in which order, and how much of it fits into the time there is.
//
// Drift is the enemy of a sweep: machines warm up, neighbours come and go. So nothing is measured to its end before the next:
// every round measures every case once, in an order of its own, and cases are compared within rounds.
package plan

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"
)

// Setting is a way to connect: queue pairs per connection, and whether each message is split over all of them
// (NCCL_IB_QPS_PER_CONNECTION, NCCL_IB_SPLIT_DATA_ON_QPS). With one QP both modes are the same.
type Setting struct {
	QPs   int
	Split bool
}

// Case is one thing to measure: messages of Size bytes over the setting with this index.
type Case struct {
	Setting int
	Size    int
}

// Modes is which split modes a sweep covers.
type Modes string

// Split modes: each message over all QPs, messages over the QPs in turn, or one after the other.
const (
	Both Modes = "both"
	On   Modes = "on"
	Off  Modes = "off"
)

// Spec is what the user wants. Every field is meant as it stands; Default gives one to change.
type Spec struct {
	QPs    []int
	Sizes  []int // bytes
	Modes  Modes
	Depth  int // messages in flight
	Rounds int
	// Iters is messages per case and round; 0 takes what the budget allows.
	Iters  int
	Budget time.Duration
	Seed   uint64
}

// Limits of a spec. A message is at most 1 GiB as in NCCL, and the buffers of both ends are bounded.
const (
	MaxQPs    = 128
	MaxSize   = 1 << 30
	MaxDepth  = 128
	MaxBuffer = 1 << 30
	MaxRounds = 10_000
	MaxIters  = 100_000_000
	MaxBudget = 24 * time.Hour
)

// Default is the sweep for hardware, or the smaller one for devices whose packets the processor moves.
func Default(software bool) Spec {
	s := Spec{
		QPs: []int{1, 2, 4, 8, 16}, Sizes: []int{8, 4 << 10, 16 << 10, 128 << 10, 1 << 20, 4 << 20},
		Modes: Both, Depth: 8, Rounds: 5, Budget: time.Minute,
	}
	if software {
		s.Sizes = []int{8, 4 << 10, 64 << 10, 1 << 20}
		s.Depth = 4
		s.Budget = 150 * time.Second
	}
	return s
}

// Check says what is wrong with a spec, all of it at once.
func (s Spec) Check() error {
	var errs []error
	bad := func(format string, a ...any) { errs = append(errs, fmt.Errorf(format, a...)) }
	list := func(name string, xs []int, low, high int) {
		if len(xs) == 0 {
			bad("no %s", name)
		}
		for i, x := range xs {
			if x < low || x > high {
				bad("%s %d is not within %d and %d", name, x, low, high)
			}
			if slices.Contains(xs[:i], x) {
				bad("%s %d is listed twice", name, x)
			}
		}
	}
	within := func(name string, x, low, high int) {
		if x < low || x > high {
			bad("%s %d is not within %d and %d", name, x, low, high)
		}
	}
	list("QPs per connection", s.QPs, 1, MaxQPs)
	list("message size", s.Sizes, 1, MaxSize)
	within("depth", s.Depth, 1, MaxDepth)
	within("rounds", s.Rounds, 1, MaxRounds)
	within("iterations", s.Iters, 0, MaxIters)
	if len(s.Sizes) > 0 && s.Depth >= 1 && s.Depth <= MaxDepth {
		if biggest := slices.Max(s.Sizes); biggest <= MaxSize && biggest*s.Depth > MaxBuffer {
			bad("%d messages of %d bytes in flight need a buffer of more than %d bytes; lower the depth or the sizes", s.Depth, biggest, MaxBuffer)
		}
	}
	if s.Modes != Both && s.Modes != On && s.Modes != Off {
		bad("split mode %q is none of both, on, off", s.Modes)
	}
	if s.Budget < time.Second || s.Budget > MaxBudget {
		bad("budget %v is not within 1s and %v", s.Budget, MaxBudget)
	}
	return errors.Join(errs...)
}

// Settings is the connections that the sweep needs, by rising QPs. One QP is there once: its modes do not differ.
func (s Spec) Settings() []Setting {
	var list []Setting
	for _, n := range slices.Sorted(slices.Values(s.QPs)) {
		if n == 1 {
			list = append(list, Setting{QPs: 1, Split: s.Modes == On})
			continue
		}
		if s.Modes != On {
			list = append(list, Setting{QPs: n})
		}
		if s.Modes != Off {
			list = append(list, Setting{QPs: n, Split: true})
		}
	}
	return list
}

// Cases is every size over every setting, sizes rising.
func (s Spec) Cases() []Case {
	var list []Case
	for _, size := range slices.Sorted(slices.Values(s.Sizes)) {
		for i := range s.Settings() {
			list = append(list, Case{Setting: i, Size: size})
		}
	}
	return list
}

// Order is the order of n cases in a round: shuffled anew for each, the same for the same seed.
func Order(n int, seed uint64, round int) []int {
	return rand.New(rand.NewPCG(seed, uint64(round))).Perm(n)
}
