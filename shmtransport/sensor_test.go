//go:build linux

package shmtransport

import (
	"testing"
	"time"
)

func TestSensor(t *testing.T) {
	const ahead, near, far, interrupted = 20 * time.Nanosecond, 60 * time.Nanosecond, 170 * time.Nanosecond, time.Millisecond
	s := newSensor()
	for i, c := range []struct {
		took         time.Duration
		changed, far bool
	}{
		{near, false, false}, {far, false, false}, {near, false, false}, // one vote is none
		{far, false, false}, {interrupted, false, false}, {ahead, false, false}, {far, true, true}, // neither says anything
		{far, false, true}, {near, false, true}, {far, false, true},
		{near, false, true}, {near, false, true}, {near, false, true}, {ahead, false, true}, {near, false, true},
		{near, false, true}, {near, false, true}, {near, false, true}, {near, true, false},
	} {
		if changed := s.vote(c.took); changed != c.changed || (s.far == 1) != c.far {
			t.Errorf("step %d, %v: changed %v, far %v", i, c.took, changed, s.far)
		}
	}
	for _, among := range []bool{true, false} {
		s := sensor{far: 1}
		for i := range votesNear * aheadEach {
			if changed := s.vote(ahead); changed && i+1 < votesNear*aheadEach {
				t.Fatalf("%d lines that came ahead changed the hint", i+1)
			}
			if among && i == votesNear*aheadEach/2 {
				s.vote(far)
			}
		}
		if (s.far == 1) != among {
			t.Errorf("far %v after lines that came ahead, a distant one among them: %v", s.far, among)
		}
	}
	if r := s.rate(); r <= 0 {
		t.Errorf("%v ticks in a microsecond", r)
	}
}

// What the receiver says of the distance changes how the sender copies, and what either does to lines beside, not what arrives.
func TestFar(t *testing.T) {
	geometries(t, func(t *testing.T, a, b *Conn) {
		buf := make([]byte, 1<<20)
		for i := range 3 * len(sizes) {
			b.r.control.far, b.r.sensor.far = 1, 1
			n := min(sizes[i%len(sizes)], 10_000)
			m := patterned(n+1, uint64(i))[1:] // not aligned
			if err := a.Send(t.Context(), m); err != nil {
				t.Fatal(err)
			}
			got, err := b.Recv(t.Context(), buf)
			if err != nil || string(buf[:got]) != string(m) {
				t.Fatalf("message %d: %d of %d bytes, %v", i, got, n, err)
			}
			for a.s.Prepare() {
			}
			if b.r.look(2) {
				t.Fatal("a message that nobody has sent")
			}
			if b.r.dropped != b.r.pos {
				t.Fatalf("message %d: %d bytes read, dropped up to %d", i, b.r.pos, b.r.dropped)
			}
		}
	})
}
