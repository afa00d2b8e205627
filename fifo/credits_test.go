package fifo

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"testing"

	"github.com/purerdma/purerdma/internal/mmio"
	"github.com/purerdma/purerdma/mr"
)

// offer is a valid offer with a number in it.
func offer(l Layout, n int) CTS {
	c := CTS{Addr: uint64(0x7f00_0000_0000 + n*4096), Size: uint64(n % 5000), Tag: uint32(n * 7)}
	for i := range l.Keys() {
		c.RKeys[i] = uint32(n<<4 + i + 1)
	}
	return c
}

// deliver does what the RDMA write of a row does.
func deliver(c *Credits, s *CreditStaging, k uint64, off, n int) {
	at := Layout(0).CreditAddr(0, k)
	copy(c.Buffer().Bytes()[at:], s.Buffer().Bytes()[off:off+n])
}

// TestCreditsWrap runs messages through the ring over the places where a
// counter of 31, 32 or 64 bits would turn over.
func TestCreditsWrap(t *testing.T) {
	for _, l := range allLayouts {
		for _, around := range []uint64{0, 1 << 31, 1 << 32, 1 << 63} {
			t.Run(fmt.Sprintf("%v/%#x", l, around), func(t *testing.T) {
				c, s := newCredits(t, l), newCreditStaging(t, l)
				var got [MaxRecvs]CTS
				first := around - 600
				for k := first; k != around+600; k++ {
					if n, err := c.Peek(k, &got); n != 0 || err != nil {
						t.Fatalf("message %#x before its offer: %d, %v", k, n, err)
					}
					want := make([]CTS, 1+k%MaxRecvs)
					for i := range want {
						want[i] = offer(l, int(k%1000)*8+i)
					}
					off, n, err := s.Fill(k, want)
					if err != nil {
						t.Fatal(err)
					}
					deliver(c, s, k, off, n)
					for i := range want {
						want[i].NReqs, want[i].Idx = uint32(len(want)), k+1
					}
					for range 2 {
						n, err := c.Peek(k, &got)
						if err != nil || !slices.Equal(got[:n], want) {
							t.Fatalf("message %#x: %v, %v, want %v", k, got[:n], err, want)
						}
					}
					c.Clear(k)
				}
			})
		}
	}
}

// TestCreditsAhead fills the whole ring before anything is taken.
func TestCreditsAhead(t *testing.T) {
	c, s := newCredits(t, Layout225), newCreditStaging(t, Layout225)
	const first = 1<<64 - 100
	for i := range Rows {
		k := uint64(first) + uint64(i)
		off, n, err := s.Fill(k, []CTS{offer(Layout225, i), offer(Layout225, i+1)})
		if err != nil {
			t.Fatal(err)
		}
		deliver(c, s, k, off, n)
	}
	for i := range Rows {
		k := uint64(first) + uint64(i)
		var got [MaxRecvs]CTS
		if n, err := c.Peek(k, &got); n != 2 || err != nil || got[0].Addr != offer(Layout225, i).Addr {
			t.Fatalf("message %#x: %d, %v", k, n, err)
		}
		c.Clear(k)
	}
}

// TestPeekPartial delivers the offers of a row in every order: until the last
// has come the row is "not yet".
func TestPeekPartial(t *testing.T) {
	for _, l := range allLayouts {
		c, s := newCredits(t, l), newCreditStaging(t, l)
		seed := rand.Uint64()
		r := rand.New(rand.NewPCG(seed, 0))
		for k := range uint64(2000) {
			n := 1 + r.IntN(MaxRecvs)
			offers := make([]CTS, n)
			for i := range offers {
				offers[i] = offer(l, int(k)+i)
			}
			off, _, err := s.Fill(k, offers)
			if err != nil {
				t.Fatal(err)
			}
			var got [MaxRecvs]CTS
			for j, i := range r.Perm(n) {
				if m, err := c.Peek(k, &got); m != 0 || err != nil {
					t.Fatalf("seed %d, message %d with %d of %d offers: %d, %v", seed, k, j, n, m, err)
				}
				at := int(k%Rows)*512 + i*64
				copy(c.Buffer().Bytes()[at:at+64], s.Buffer().Bytes()[off+i*64:])
			}
			if m, err := c.Peek(k, &got); m != n || err != nil {
				t.Fatalf("seed %d, message %d: %d of %d, %v", seed, k, m, n, err)
			}
			c.Clear(k)
		}
	}
}

// TestPeekRefuses changes one thing of a row of two that was well.
func TestPeekRefuses(t *testing.T) {
	for _, l := range allLayouts {
		idx, nreqs := 40, 32
		if l == Layout230 {
			idx, nreqs = 56, 48
		}
		for _, tt := range []struct {
			name  string
			at    int
			value uint64
			bytes int
		}{
			{"nothing offered", nreqs, 0, 4},
			{"nine offered", nreqs, 9, 4},
			{"2^32-1 offered", nreqs, 1<<32 - 1, 4},
			{"second disagrees", 64 + nreqs, 1, 4},
			{"address 0", 0, 0, 8},
			{"second address 0", 64, 0, 8},
			{"no key", 16, 0, 4},
			{"second has no key", 64 + 16, 0, 4},
			{"size of 2 GiB", 8, 1 << 31, 8},
			{"size of 2^64-1", 8, 1<<64 - 1, 8},
			{"over the end of memory", 0, 1<<64 - 5, 8},
			{"a message ahead", idx, 8, 8},
			{"a ring ahead", idx, 7 + 256, 8},
		} {
			t.Run(fmt.Sprintf("%v/%s", l, tt.name), func(t *testing.T) {
				c, s := newCredits(t, l), newCreditStaging(t, l)
				const k = 6
				off, n, err := s.Fill(k, []CTS{offer(l, 6), offer(l, 7)})
				if err != nil {
					t.Fatal(err)
				}
				deliver(c, s, k, off, n)
				var got [MaxRecvs]CTS
				if n, err := c.Peek(k, &got); n != 2 || err != nil {
					t.Fatalf("before the change: %d, %v", n, err)
				}
				for i := range tt.bytes {
					c.Buffer().Bytes()[k*512+tt.at+i] = byte(tt.value >> (8 * i))
				}
				if n, err := c.Peek(k, &got); n != 0 || !errors.Is(err, ErrPeer) {
					t.Errorf("%d, %v", n, err)
				}
			})
		}
	}
}

// TestPeekStale sees that an old row is no offer, cleared or not.
func TestPeekStale(t *testing.T) {
	c, s := newCredits(t, Layout225), newCreditStaging(t, Layout225)
	off, n, err := s.Fill(3, []CTS{offer(Layout225, 1)})
	if err != nil {
		t.Fatal(err)
	}
	deliver(c, s, 3, off, n)
	var got [MaxRecvs]CTS
	for _, k := range []uint64{3 + Rows, 3 + 1000*Rows, 3 + 1<<40} {
		if n, err := c.Peek(k, &got); n != 0 || err != nil {
			t.Errorf("message %d: %d, %v", k, n, err)
		}
	}
	c.Clear(3)
	if b := c.Buffer().Bytes()[3*512 : 4*512]; slices.ContainsFunc(b, func(b byte) bool { return b != 0 }) {
		t.Error("the row is not zero after Clear")
	}
}

// TestPeekAheadWrap tells ahead from stale where the numbers wrap.
func TestPeekAheadWrap(t *testing.T) {
	for _, tt := range []struct {
		k, idx uint64
		ahead  bool
	}{
		{1<<64 - 3, 5, true},
		{2, 1<<64 - 100, false},
		{1<<32 - 3, 1<<32 + 5, true},
		{1<<31 + 2, 1<<31 - 5, false},
	} {
		c := newCredits(t, Layout225)
		binary.NativeEndian.PutUint64(c.Buffer().Bytes()[row(tt.k)*512+40:], tt.idx)
		var got [MaxRecvs]CTS
		if n, err := c.Peek(tt.k, &got); n != 0 || errors.Is(err, ErrPeer) != tt.ahead {
			t.Errorf("message %#x with number %#x: %d, %v", tt.k, tt.idx, n, err)
		}
	}
}

// TestChangedWhileRead is what Peek says of a copy with another number than the
// one that it waited for.
func TestChangedWhileRead(t *testing.T) {
	c := offer(Layout225, 1)
	c.NReqs, c.Idx = 1, 8
	if what := c.wrong(8, 1); what != "" {
		t.Error(what)
	}
	if c.wrong(7, 1) == "" {
		t.Error("an offer that changed was let through")
	}
}

func TestClearFirstOnly(t *testing.T) {
	c, s := newCredits(t, Layout230), newCreditStaging(t, Layout230)
	off, n, err := s.Fill(0, []CTS{offer(Layout230, 1), offer(Layout230, 2)})
	if err != nil {
		t.Fatal(err)
	}
	deliver(c, s, 0, off, n)
	second := slices.Clone(c.Buffer().Bytes()[64:128])
	c.Clear(0)
	b := c.Buffer().Bytes()
	if slices.ContainsFunc(b[:64], func(b byte) bool { return b != 0 }) || !slices.Equal(b[64:128], second) {
		t.Errorf("after Clear: %x", b[:128])
	}
}

func TestFillRefuses(t *testing.T) {
	s := newCreditStaging(t, Layout225)
	good := offer(Layout225, 1)
	with := func(f func(*CTS)) []CTS { c := good; f(&c); return []CTS{good, c} }
	for name, offers := range map[string][]CTS{
		"none":       nil,
		"nine":       slices.Repeat([]CTS{good}, 9),
		"no address": with(func(c *CTS) { c.Addr = 0 }),
		"no key":     with(func(c *CTS) { c.RKeys[0] = 0 }),
		"too large":  with(func(c *CTS) { c.Size = MaxSize + 1 }),
		"over end":   with(func(c *CTS) { c.Addr, c.Size = 1<<64-8, 9 }),
	} {
		if _, _, err := s.Fill(5, offers); err == nil || errors.Is(err, ErrPeer) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if slices.ContainsFunc(s.Buffer().Bytes(), func(b byte) bool { return b != 0 }) {
		t.Error("a refused row was written")
	}
	for _, offers := range [][]CTS{{{Addr: 1<<64 - 8, Size: 8, RKeys: good.RKeys}}, {{Addr: 1, RKeys: good.RKeys}}, slices.Repeat([]CTS{good}, 8)} {
		if _, _, err := s.Fill(5, offers); err != nil {
			t.Error(err)
		}
	}
}

// TestPeekConcurrent has a peer write rows while they are looked for, the number
// of each offer last.
func TestPeekConcurrent(t *testing.T) {
	const messages = 5000
	l := Layout225
	c, s := newCredits(t, l), newCreditStaging(t, l)
	slots, err := mr.View[[Rows * MaxRecvs]offer4](c.Buffer(), 0)
	from, err2 := mr.View[[Rows * MaxRecvs]offer4](s.Buffer(), 0)
	taken, err3 := mr.View[uint64](newSizesStaging(t).Buffer(), 0) // any word off the heap
	if err := errors.Join(err, err2, err3); err != nil {
		t.Fatal(err)
	}

	var wg sync.WaitGroup
	wg.Go(func() {
		for k := range uint64(messages) {
			offers := make([]CTS, 1+k%MaxRecvs)
			for i := range offers {
				offers[i] = offer(l, int(k)+i)
			}
			for mmio.LoadAcquire64(taken)+Rows/2 < k {
				runtime.Gosched()
			}
			if _, _, err := s.Fill(k, offers); err != nil {
				t.Error(err)
				return
			}
			at := int(k%Rows) * MaxRecvs
			for i := len(offers) - 1; i >= 0; i-- {
				o := from[at+i]
				d := &slots[at+i]
				d.Addr, d.Size, d.RKeys, d.NReqs, d.Tag = o.Addr, o.Size, o.RKeys, o.NReqs, o.Tag
				mmio.StoreRelease64(&d.Idx, o.Idx)
			}
		}
	})
	for k := range uint64(messages) {
		var got [MaxRecvs]CTS
		n, err := c.Peek(k, &got)
		for ; n == 0 && err == nil; n, err = c.Peek(k, &got) {
			runtime.Gosched()
		}
		if err != nil || n != int(1+k%MaxRecvs) || got[n-1].Addr != offer(l, int(k)+n-1).Addr {
			t.Errorf("message %d: %d, %v", k, n, err)
		}
		c.Clear(k)
		mmio.StoreRelease64(taken, k)
	}
	wg.Wait()
}

func TestClosed(t *testing.T) {
	c, err := NewCredits(Layout225)
	if err != nil {
		t.Fatal(err)
	}
	s, err := NewCreditStaging(Layout230)
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := errors.Join(c.Close(), s.Close()); err != nil {
			t.Error(err)
		}
	}
	var got [MaxRecvs]CTS
	if _, err := c.Peek(0, &got); !errors.Is(err, ErrClosed) {
		t.Error(err)
	}
	c.Clear(0)
	if _, _, err := s.Fill(0, []CTS{offer(Layout230, 1)}); !errors.Is(err, ErrClosed) {
		t.Error(err)
	}
}

func TestNoAllocations(t *testing.T) {
	for _, l := range allLayouts {
		c, s := newCredits(t, l), newCreditStaging(t, l)
		sizes, copies := newSizes(t, l), newSizesStaging(t)
		k := uint64(0)
		if n := testing.AllocsPerRun(1000, func() {
			offers := [...]CTS{offer(l, 1), offer(l, 2)}
			off, n, err := s.Fill(k, offers[:])
			deliver(c, s, k, off, n)
			var got [MaxRecvs]CTS
			m, err2 := c.Peek(k, &got)
			c.Clear(k)
			sizes.Clear(k, 2)
			lengths := [...]int{0, 0}
			_, _, err3 := copies.Fill(k, lengths[:])
			err4 := sizes.Read(k, lengths[:], lengths[:])
			if err != nil || err2 != nil || err3 != nil || err4 != nil || m != 2 {
				t.Fatal(err, err2, err3, err4, m)
			}
			k++
		}); n != 0 {
			t.Errorf("%v: %v allocations", l, n)
		}
	}
}

// FuzzPeek gives rows of any bytes: whatever is taken from them can be used.
func FuzzPeek(f *testing.F) {
	f.Add(uint8(0), uint64(0), []byte{1, 2, 3})
	row := make([]byte, 512)
	row[0], row[16], row[32], row[40] = 1, 1, 1, 1
	f.Add(uint8(0), uint64(0), row)
	f.Fuzz(func(t *testing.T, layout uint8, k uint64, row []byte) {
		l := allLayouts[int(layout)%len(allLayouts)]
		c := newCredits(t, l)
		b := c.Buffer().Bytes()[l.CreditAddr(0, k):]
		copy(b[:512], row)
		var got [MaxRecvs]CTS
		n, err := c.Peek(k, &got)
		if err != nil && (n != 0 || !errors.Is(err, ErrPeer)) || n < 0 || n > MaxRecvs {
			t.Fatalf("%d, %v", n, err)
		}
		for i, g := range got[:n] {
			if g.wrong(k+1, uint32(n)) != "" {
				t.Errorf("offer %d of %d was let through: %+v", i, n, g)
			}
		}
	})
}

func BenchmarkPeek(b *testing.B) {
	c, s := newCredits(b, Layout225), newCreditStaging(b, Layout225)
	off, n, err := s.Fill(0, []CTS{offer(Layout225, 1)})
	if err != nil {
		b.Fatal(err)
	}
	deliver(c, s, 0, off, n)
	var got [MaxRecvs]CTS
	for b.Loop() {
		if n, err := c.Peek(0, &got); n != 1 || err != nil {
			b.Fatal(n, err)
		}
	}
}
