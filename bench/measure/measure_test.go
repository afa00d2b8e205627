package measure

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// wire is a one-way connection in memory: messages go into the buffers that were offered, in order.
type wire struct {
	mu      sync.Mutex
	src     []byte
	dst     []byte
	offers  [][2]int
	arrived []int
	sent    []int
	lag     int // looks before a message counts as done
	damage  func(message int, b []byte)
	count   int
	err     error
}

type sender struct {
	*wire
	looks int
}

func (s *sender) Start(off, n int) (bool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err != nil || len(s.offers) == 0 {
		return false, s.err
	}
	o := s.offers[0]
	s.offers = s.offers[1:]
	m := copy(s.dst[o[0]:o[0]+o[1]], s.src[off:off+n])
	if s.damage != nil {
		s.damage(s.count, s.dst[o[0]:o[0]+m])
	}
	s.count++
	s.arrived, s.sent = append(s.arrived, m), append(s.sent, n)
	return true, nil
}

func (s *sender) Finished() (int, bool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.looks++; s.err != nil || len(s.sent) == 0 || s.looks%(s.lag+1) != 0 {
		return 0, false, s.err
	}
	n := s.sent[0]
	s.sent = s.sent[1:]
	return n, true, nil
}

type receiver struct{ *wire }

func (r receiver) Start(off, n int) (bool, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.offers) > 64 {
		return false, r.err
	}
	r.offers = append(r.offers, [2]int{off, n})
	return true, r.err
}

func (r receiver) Finished() (int, bool, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.err != nil || len(r.arrived) == 0 {
		return 0, false, r.err
	}
	n := r.arrived[0]
	r.arrived = r.arrived[1:]
	return n, true, nil
}

func newWire() *wire {
	return &wire{src: make([]byte, 1<<16), dst: make([]byte, 1<<16), lag: 3}
}

// checked moves messages with a pattern each, and looks at all that arrive.
func checked(t *testing.T, w *wire, size, count, slots int) (sent, received error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	ring := Ring{Stride: size, Slots: slots}
	out := Stream{Dir: &sender{wire: w}, Ring: ring, Size: size, Count: count, Before: func(i, off int) error {
		Fill(w.src[off:off+size], MessageSeed(7, i))
		return nil
	}}
	in := Stream{Dir: receiver{w}, Ring: ring, Size: size, Count: count, After: func(i, off int) error {
		return Check(w.dst[off:off+size], MessageSeed(7, i))
	}}
	ends := make(chan error, 1)
	go func() {
		_, err := in.Run(ctx)
		if err != nil {
			cancel()
		}
		ends <- err
	}()
	_, sent = out.Run(ctx)
	return sent, <-ends
}

func TestStream(t *testing.T) {
	for _, size := range []int{1, 7, 8, 9, 128, 1000} {
		for _, slots := range []int{1, 2, 8} {
			if sent, received := checked(t, newWire(), size, 100, slots); sent != nil || received != nil {
				t.Errorf("%d bytes, %d in flight: %v, %v", size, slots, sent, received)
			}
		}
	}
}

func TestStreamSeesDamage(t *testing.T) {
	for name, damage := range map[string]func([]byte){
		"a bit":       func(b []byte) { b[len(b)/2] ^= 1 },
		"the end":     func(b []byte) { b[len(b)-1]++ },
		"all of it":   func(b []byte) { clear(b) },
		"moved words": func(b []byte) { copy(b, b[8:]) },
	} {
		w := newWire()
		w.damage = func(i int, b []byte) {
			if i == 41 {
				damage(b)
			}
		}
		_, err := checked(t, w, 100, 60, 4)
		if !errors.Is(err, ErrData) || !strings.Contains(err.Error(), "message 42 of 60") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestStreamSeesOrder(t *testing.T) {
	w := newWire()
	var before []byte
	w.damage = func(i int, b []byte) { // message 10 and 11 change places
		switch i {
		case 9:
			before = append(before, b...)
			Fill(b, MessageSeed(7, 10))
		case 10:
			copy(b, before)
		}
	}
	if _, err := checked(t, w, 64, 20, 4); !errors.Is(err, ErrData) {
		t.Error(err)
	}
}

func TestStreamEndsWithItsConnection(t *testing.T) {
	w := newWire()
	w.damage = func(i int, _ []byte) {
		if i == 5 {
			w.err = errors.New("link is down")
		}
	}
	sent, received := checked(t, w, 64, 20, 4)
	for _, err := range []error{sent, received} {
		if err == nil || !strings.Contains(err.Error(), "link is down") {
			t.Errorf("%v", err)
		}
	}
}

func TestWrongSize(t *testing.T) {
	w := newWire()
	r := Stream{Dir: receiver{w}, Ring: Ring{Stride: 64, Slots: 1}, Size: 64, Count: 1}
	if err := r.Fill(); err != nil {
		t.Fatal(err)
	}
	if ok, err := (&sender{wire: w}).Start(0, 10); !ok || err != nil {
		t.Fatal(ok, err)
	}
	if _, err := r.Run(t.Context()); !errors.Is(err, ErrSize) {
		t.Error(err)
	}
}

// A peer that never does anything costs no more than the deadline.
func TestDeadline(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	s := Stream{Dir: &sender{wire: newWire()}, Ring: Ring{Stride: 8, Slots: 1}, Size: 8, Count: 1}
	if _, err := s.Run(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Error(err)
	}
	p := PingPong{Send: &sender{wire: newWire()}, Recv: receiver{newWire()}, Size: 8, Count: 1}
	if err := p.Follow(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Error(err)
	}
}

func TestPingPong(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	there, back := newWire(), newWire()
	const count = 50
	lead := PingPong{Send: &sender{wire: there}, Recv: receiver{back}, Size: 8, Count: count}
	follow := PingPong{Send: &sender{wire: back}, Recv: receiver{there}, Size: 8, Count: count}
	for _, p := range []*PingPong{&lead, &follow} {
		if err := p.Offer(ctx); err != nil {
			t.Fatal(err)
		}
	}
	done := make(chan error)
	go func() { done <- follow.Follow(ctx) }()
	samples, err := lead.Lead(ctx, nil)
	if err := errors.Join(err, <-done); err != nil {
		t.Fatal(err)
	}
	if len(samples) != count {
		t.Errorf("%d samples", len(samples))
	}
	if there.count != count || back.count != count || len(there.offers)+len(back.offers) != 0 {
		t.Errorf("%d there, %d back, %d and %d buffers left over", there.count, back.count, len(there.offers), len(back.offers))
	}
}

func TestLoopsDoNotAllocate(t *testing.T) {
	w := newWire()
	w.offers, w.arrived, w.sent = make([][2]int, 0, 1000), make([]int, 0, 1000), make([]int, 0, 1000)
	r, s := receiver{w}, &sender{wire: w}
	in := Stream{Dir: r, Ring: Ring{Stride: 8, Slots: 8}, Size: 8, Count: 1 << 30}
	out := Stream{Dir: s, Ring: Ring{Stride: 8, Slots: 8}, Size: 8, Count: 1 << 30}
	if n := testing.AllocsPerRun(5, func() {
		w.offers, w.arrived, w.sent = w.offers[:0], w.arrived[:0], w.sent[:0]
		_ = in.Fill()
		_ = out.Fill()
	}); n != 0 {
		t.Errorf("Fill allocates %v times", n)
	}
}

func FuzzPattern(f *testing.F) {
	f.Add(uint64(1), 100, 3)
	f.Fuzz(func(t *testing.T, seed uint64, n, at int) {
		if n < 1 || n > 1<<16 || at < 0 || at >= n {
			return
		}
		b := make([]byte, n)
		Fill(b, seed)
		if err := Check(b, seed); err != nil {
			t.Fatal(err)
		}
		if err := CheckPart(b[at&^7:], seed, at&^7); err != nil {
			t.Fatal(err)
		}
		b[at] ^= 0x10
		if err := Check(b, seed); !errors.Is(err, ErrData) {
			t.Fatalf("byte %d of %d was changed: %v", at, n, err)
		}
	})
}
