package cpu

import (
	"bytes"
	"testing"
	"time"

	"github.com/purerdma/purerdma/internal/offheap"
)

func memory(t testing.TB, n int) offheap.Span {
	t.Helper()
	s, err := offheap.Map(n, offheap.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Release(); err != nil {
			t.Error(err)
		}
	})
	return s
}

func TestPollHigh(t *testing.T) {
	p := (*uint64)(memory(t, 4096).Pointer())
	for _, c := range []struct {
		word  uint64
		want  uint32
		looks int
	}{
		{7<<32 | 5, 7, 1}, {7<<32 | 5, 7, 1000}, {7<<32 | 5, 5, 3}, {7<<32 | 5, 8, 0}, {0xffffffff<<32 | 1, 0xffffffff, 2}, {0, 0, -1},
	} {
		*p = c.word
		if got := PollHigh(p, c.want, c.looks); got != c.word {
			t.Errorf("%#x, want %#x", got, c.word)
		}
	}
}

// What is polled for and comes later is seen, with what was stored before it.
func TestPollHighSeesWhatComes(t *testing.T) {
	s := memory(t, 4096)
	p := (*uint64)(s.Pointer())
	seen := make(chan uint64)
	go func() {
		for {
			if w := PollHigh(p, 9, 64); w>>32 == 9 {
				seen <- w
				return
			}
		}
	}()
	PollHigh(p, 1, 1000)
	CopyPast(&s.Bytes()[0], &append(make([]byte, 4), append([]byte{9}, make([]byte, 59)...)...)[0], Line)
	if w := <-seen; w != 9<<32 {
		t.Errorf("%#x", w)
	}
}

func TestCopyPast(t *testing.T) {
	dst := memory(t, 1<<16).Bytes()
	src := make([]byte, 1<<16)
	for i := range src {
		src[i] = byte(i * 7)
	}
	for _, n := range []int{0, 64, 128, 4096, 1<<16 - 128} {
		for shift := range 17 {
			clear(dst)
			CopyPast(&dst[64], &src[shift], n)
			if !bytes.Equal(dst[64:64+n], src[shift:shift+n]) {
				t.Fatalf("%d bytes from %d on differ", n, shift)
			}
			if bytes.ContainsFunc(dst[:64], func(r rune) bool { return r != 0 }) || dst[64+n] != 0 {
				t.Fatalf("%d bytes from %d on: written beside them", n, shift)
			}
		}
	}
}

// What has left the caches is in memory as it was, and lines that were stored again after are as they are then.
func TestEvict(t *testing.T) {
	b := memory(t, 1<<16).Bytes()
	want := make([]byte, len(b))
	for i := range want {
		want[i] = byte(i * 11)
	}
	for _, n := range []int{0, -64, 64, 4096, 1<<16 - 64} {
		copy(b, want)
		Evict(&b[0], n)
		if !bytes.Equal(b, want) {
			t.Fatalf("%d bytes evicted: memory has changed", n)
		}
		for i := range want {
			want[i]++
		}
		Evict(&b[64], n)
		CopyPast(&b[0], &want[0], len(b))
		if !bytes.Equal(b, want) {
			t.Fatalf("%d bytes evicted, then stored: not what was stored", n)
		}
	}
}

func TestTimes(t *testing.T) {
	p := (*uint64)(memory(t, 4096).Pointer())
	if !Streams {
		if TimeLoad(p) != 0 || Ticks() != 0 {
			t.Error("times that nothing is behind")
		}
		return
	}
	*p = 1
	least := TimeLoad(p)
	for range 1000 {
		least = min(least, TimeLoad(p))
	}
	if least == 0 || least > 100_000 {
		t.Errorf("a load from the first-level cache takes %d ticks", least)
	}
	before := Ticks()
	for begun := time.Now(); time.Since(begun) < time.Microsecond; {
	}
	if after := Ticks(); after <= before {
		t.Errorf("%d ticks, later %d", before, after)
	}
}

func TestNoAllocations(t *testing.T) {
	s := memory(t, 4096)
	p, src := (*uint64)(s.Pointer()), make([]byte, 128)
	if n := testing.AllocsPerRun(100, func() {
		PollHigh(p, 1, 2)
		CopyPast(&s.Bytes()[0], &src[0], 128)
		Evict(&s.Bytes()[0], 128)
		TimeLoad(p)
		Ticks()
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func TestCopyDistant(t *testing.T) {
	const most = 20_000
	src, dst := memory(t, 24_576).Bytes(), make([]byte, most+2)
	for i := range src {
		src[i] = byte(i*7 + i>>8)
	}
	for _, n := range []int{0, 1, 64, 127, 128, 129, 255, 256, 1000, 1024, 4095, 4096, 4160, 8191, 8192, 8320, 12_288, most} {
		for _, shift := range []int{0, 1, 63} {
			for i := range dst {
				dst[i] = 0xee
			}
			from, to := src[shift:shift+n], dst[1:1+n]
			done := CopyDistant(to, from)
			if done < 0 || done > n || done != 0 && n-done >= 2*Line {
				t.Fatalf("%d bytes: %d copied", n, done)
			}
			if !bytes.Equal(to[:done], from[:done]) {
				t.Fatalf("%d bytes from %d on differ", n, shift)
			}
			if dst[0] != 0xee || bytes.Count(dst[1+done:], []byte{0xee}) != len(dst)-1-done {
				t.Fatalf("%d bytes from %d on: written beside them", n, shift)
			}
		}
	}
	if done := CopyDistant(dst[:300], src[:200]); done > 200 {
		t.Errorf("%d bytes of 200", done)
	}
}
