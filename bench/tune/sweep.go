package tune

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"time"

	"github.com/purerdma/purerdma/bench/advise"
	"github.com/purerdma/purerdma/bench/control"
	"github.com/purerdma/purerdma/bench/measure"
	"github.com/purerdma/purerdma/bench/plan"
	"github.com/purerdma/purerdma/qp"
)

// Progress is told how far a sweep is: done of total steps, and the step that comes. It is called from the sweep's goroutine.
type Progress func(done, total int, step string)

// Result is what a sweep found. Where it failed or was interrupted it is what was known by then.
type Result struct {
	Sender, Receiver Description
	Settings         []plan.Setting
	Paths            [][]qp.Path // of the queue pairs from sender to receiver, by setting
	Cases            []CaseResult
	Rounds           int // that were completed
	Notes            []string
}

// CaseResult is what was measured of one case, in completed rounds.
type CaseResult struct {
	plan.Case
	Messages  int       // in the streams of all rounds
	Bandwidth []float64 // of each round, bytes a second
	Half      []float64 // nanoseconds, half of each round trip of all rounds, ascending
}

// name is how people call a setting.
func name(s plan.Setting) string { return advise.Candidate{QPs: s.QPs, Split: s.Split}.Name() }

// Sweep measures all of spec's cases with the other end at nc, which it closes. spec has to be checked before. It blocks for about
// spec.Budget, half as long again at most where the machine turns out slow.
func Sweep(ctx context.Context, nc net.Conn, c EndConfig, spec plan.Spec, a Attributes, progress Progress) (r Result, err error) {
	began := time.Now()
	ctl, err := greet(ctx, nc)
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, ctl.Close()) }()
	ctx, release := both(ctx, ctl)
	defer release()
	w := &sweeper{ctl: ctl, nc: nc, spec: spec, r: &r, progress: progress, began: began}
	err = w.sweep(ctx, c, a)
	if err != nil {
		err = tell(ctx, ctl, err)
	}
	if w.end != nil {
		err = errors.Join(err, w.end.Close())
	}
	return r, err
}

type sweeper struct {
	ctl      *control.Conn
	nc       net.Conn
	end      *End
	spec     plan.Spec
	r        *Result
	progress Progress
	began    time.Time
	seed     uint64
	done     int
}

func (w *sweeper) sweep(ctx context.Context, c EndConfig, a Attributes) error {
	if err := w.begin(ctx, c, a); err != nil {
		return err
	}
	w.r.Settings = w.spec.Settings()
	for _, s := range w.r.Settings {
		w.step("opening " + name(s))
		if err := w.open(ctx, s); err != nil {
			return err
		}
	}
	cases := w.spec.Cases()
	timings := make([]plan.Timing, len(cases))
	for i, k := range cases {
		w.step("checking " + w.name(k))
		var err error
		if timings[i], err = w.try(ctx, k); err != nil {
			return err
		}
	}
	for _, k := range cases {
		w.r.Cases = append(w.r.Cases, CaseResult{Case: k})
	}
	if err := w.rounds(ctx, timings); err != nil {
		return err
	}
	return w.ask(ctx, patience, askEnd, nil, sayEnded, nil)
}

func (w *sweeper) begin(ctx context.Context, c EndConfig, a Attributes) error {
	w.step("opening the device")
	var err error
	if w.end, err = OpenEnd(c); err != nil {
		return err
	}
	w.r.Sender = w.end.Description()
	biggest := slices.Max(w.spec.Sizes)
	if err := w.end.prepare(biggest, w.spec.Depth, a, localOf(w.nc)); err != nil {
		return err
	}
	var b begun
	if err := w.ask(ctx, patience, askBegin, begin{MaxSize: biggest, Depth: w.spec.Depth, Attributes: a, End: w.r.Sender}, sayBegun, &b); err != nil {
		return err
	}
	w.r.Receiver = b.End
	return agree(w.r.Sender, w.r.Receiver)
}

// step tells how far the sweep is, before the next step.
func (w *sweeper) step(what string) {
	if w.progress != nil {
		cases := len(w.spec.Cases())
		w.progress(w.done, 1+len(w.spec.Settings())+cases+w.spec.Rounds*cases, what)
	}
	w.done++
}

func (w *sweeper) name(k plan.Case) string {
	return fmt.Sprintf("%s, %d bytes", name(w.r.Settings[k.Setting]), k.Size)
}

func (w *sweeper) open(ctx context.Context, s plan.Setting) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	conn, ours, err := w.end.listen(ctx, s)
	if err != nil {
		return err
	}
	var o opening
	if err := w.ask(ctx, patience, askOpen, open{QPs: s.QPs, Split: s.Split, Handle: ours[:]}, sayOpening, &o); err != nil {
		return err
	}
	theirs, err := handleFrom(o.Handle, w.nc)
	if err != nil {
		return err
	}
	if err := w.end.join(ctx, conn, theirs); err != nil {
		return err
	}
	paths := conn.out.c.Paths()
	w.r.Paths = append(w.r.Paths, paths)
	w.notePaths(s, paths)
	return w.ask(ctx, patience, sayOpened, nil, sayOpened, nil)
}

// notePaths tells of queue pairs that a network which spreads flows will send the same way.
func (w *sweeper) notePaths(s plan.Setting, paths []qp.Path) {
	ports := map[uint16]bool{}
	for _, p := range paths {
		if p.UDPSourcePort != 0 {
			ports[p.UDPSourcePort] = true
		}
	}
	if n := len(ports); n > 0 && n < len(paths) {
		w.note("%s: only %d different UDP source ports, so some QPs share a path through the network", name(s), n)
	}
}

// ask sends a message and waits for the answer.
func (w *sweeper) ask(ctx context.Context, limit time.Duration, what string, body any, answer string, into any) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	if err := w.ctl.Send(what, body); err != nil {
		return err
	}
	return w.ctl.Recv(ctx, answer, into)
}

// measured is one run as this end saw it.
type measured struct {
	took, whole time.Duration // of the messages, and with all that both ends say to each other
	half        []float64     // ping-pong: half of each round trip in nanoseconds
}

// run does a run at both ends. limit is how long the messages may take.
func (w *sweeper) run(ctx context.Context, r run, limit time.Duration) (m measured, err error) {
	ctx, cancel := context.WithTimeout(ctx, limit+patience)
	defer cancel()
	begin := time.Now()
	var p *measure.PingPong
	if r.Kind == pingPong {
		p = w.end.pingPong(r)
		if err := p.Offer(ctx); err != nil {
			return m, err
		}
	}
	if err := w.ask(ctx, patience, askRun, r, sayReady, nil); err != nil {
		return m, err
	}
	if p != nil {
		m.half, m.took, err = halves(ctx, p)
	} else {
		m.took, err = w.end.sending(r).Run(ctx)
	}
	if err != nil {
		return m, fmt.Errorf("%s of %d messages of %d bytes over %s: %w", r.Kind, r.Count, r.Size, name(w.r.Settings[r.Connection]), err)
	}
	w.end.restore(r)
	if err := w.ctl.Recv(ctx, sayRan, nil); err != nil {
		return m, err
	}
	m.whole = time.Since(begin)
	return m, nil
}

func (w *sweeper) nextSeed() uint64 {
	w.seed++
	return measure.MessageSeed(w.spec.Seed, int(w.seed))
}

// try checks a case's data whole and sees how long it takes. It warms up, too.
func (w *sweeper) try(ctx context.Context, k plan.Case) (plan.Timing, error) {
	const roundTrips = 3
	r := run{Connection: k.Setting, Size: k.Size}
	var last [2]measured
	for i, try := range [...]struct {
		kind  kind
		count int
	}{{check, w.spec.Depth + w.r.Settings[k.Setting].QPs/2 + 1}, {stream, w.spec.Depth}, {pingPong, roundTrips}} {
		r.Kind, r.Count, r.Seed = try.kind, try.count, w.nextSeed()
		m, err := w.run(ctx, r, patience)
		if err != nil {
			return plan.Timing{}, err
		}
		if i > 0 {
			last[i-1] = m
		}
	}
	return plan.Timing{
		Message:   last[0].took / time.Duration(w.spec.Depth),
		RoundTrip: last[1].took / roundTrips,
		Overhead:  (last[0].whole - last[0].took + last[1].whole - last[1].took) / 2,
	}, nil
}

// rounds measures every case in every round. How much of each is decided anew before each round, by how long it took in the one
// before: a machine that slows down costs messages, not rounds. Where even the least takes too long, rounds go on for half of the
// budget beyond it: with less than five nothing can be told.
func (w *sweeper) rounds(ctx context.Context, timings []plan.Timing) error {
	for w.r.Rounds < w.spec.Rounds {
		left := w.spec.Budget - time.Since(w.began)
		fitted := plan.Fit(timings, w.spec.Depth, w.spec.Rounds-w.r.Rounds, w.spec.Iters, left)
		if over := fitted.Total - left; w.r.Rounds == 0 && over > w.spec.Budget/10 {
			w.note("all %d rounds would take about %v more than the budget of %v; there are as many as fit", w.spec.Rounds, over.Round(time.Second), w.spec.Budget)
		}
		one := fitted.Total / time.Duration(w.spec.Rounds-w.r.Rounds)
		if w.r.Rounds > 0 && one > left+w.spec.Budget/2 {
			w.note("ended after %d of %d rounds: the budget of %v is spent", w.r.Rounds, w.spec.Rounds, w.spec.Budget)
			return nil
		}
		if err := w.round(ctx, fitted.Counts, timings, 10*one); err != nil {
			return err
		}
	}
	return nil
}

func (w *sweeper) note(format string, a ...any) {
	w.r.Notes = append(w.r.Notes, fmt.Sprintf(format, a...))
}

// round measures every case once, in an order of its own, and takes the times of it. Only a whole round counts, so that all cases
// have the same ones.
func (w *sweeper) round(ctx context.Context, counts []plan.Count, timings []plan.Timing, limit time.Duration) error {
	bandwidth, half := make([]float64, len(counts)), make([][]float64, len(counts))
	for _, i := range plan.Order(len(counts), w.spec.Seed, w.r.Rounds) {
		k, c := w.r.Cases[i].Case, counts[i]
		w.step(fmt.Sprintf("round %d of %d: %s", w.r.Rounds+1, w.spec.Rounds, w.name(k)))
		s, err := w.run(ctx, run{Connection: k.Setting, Kind: stream, Size: k.Size, Count: c.Messages, Seed: w.nextSeed()}, limit)
		if err != nil {
			return err
		}
		p, err := w.run(ctx, run{Connection: k.Setting, Kind: pingPong, Size: k.Size, Count: c.RoundTrips, Seed: w.nextSeed()}, limit)
		if err != nil {
			return err
		}
		bandwidth[i] = float64(c.Messages) * float64(k.Size) / s.took.Seconds()
		half[i] = p.half
		timings[i] = plan.Timing{Message: s.took / time.Duration(c.Messages), RoundTrip: p.took / time.Duration(c.RoundTrips),
			Overhead: (s.whole - s.took + p.whole - p.took) / 2}
	}
	for i := range w.r.Cases {
		k := &w.r.Cases[i]
		k.Messages += counts[i].Messages
		k.Bandwidth = append(k.Bandwidth, bandwidth[i])
		k.Half = append(k.Half, half[i]...)
		slices.Sort(k.Half)
	}
	w.r.Rounds++
	return nil
}
