package nettransport

import (
	"errors"
	"fmt"
	"testing"

	"github.com/purerdma/purerdma/ibverbs/driver/memdriver"
)

// startAt makes both ends of a fresh connection number their messages from k on.
func (p *pair) startAt(k uint64) { p.send.head, p.recv.tail = k, k }

// TestWrap runs the numbers of messages over the edges of 31, 32 and 64 bits.
func TestWrap(t *testing.T) {
	for _, edge := range []uint64{1 << 31, 1 << 32, 0} {
		t.Run(fmt.Sprintf("%#x", edge-1), func(t *testing.T) {
			f := newFabric(t, 1, 2, memdriver.Config{}, nil)
			c := Config{QPsPerConn: 2}
			p := connect(t, f, c, c)
			p.startAt(edge - 8)
			p.groups(20, 4)
			p.transfer([]int{0, 1, 4096, 300}, 4)
			if p.send.head != p.recv.tail || p.send.head != edge-8+24 {
				t.Errorf("the ends are at %#x and %#x", p.send.head, p.recv.tail)
			}
		})
	}
}

// TestManyMessages goes round the rings more than twice, so that every place is used again and credits ask for completions as
// often as they must: the send queue never fills.
func TestManyMessages(t *testing.T) {
	f := newFabric(t, 2, 3, memdriver.Config{}, nil)
	p := connect(t, f, Config{}, Config{})
	sizes := make([]int, 700)
	for i := range sizes {
		sizes[i] = i % 300
	}
	for range 3 {
		p.transfer(sizes, 5)
	}
	if got := p.recv.Stats(); got.Messages != 2100 || got != p.send.Stats() {
		t.Errorf("stats %+v and %+v", got, p.send.Stats())
	}
}

// TestTableFull fills the tables of both ends: ok is false then, and nothing is lost.
func TestTableFull(t *testing.T) {
	f := newFabric(t, 1, 1, memdriver.Config{}, nil)
	p := connect(t, f, Config{AdaptiveRouting: On, ARThreshold: 1}, Config{ARThreshold: 1})
	smr, _ := memory(t, &p.send.Comm, 4096)
	rmr, _ := memory(t, &p.recv.Comm, 4096)
	b := Buffer{MR: rmr, N: 16, Tag: 1}
	for round := range 3 {
		var rs, ss []Request
		for {
			r, ok, err := p.recv.Irecv(b)
			if err != nil {
				t.Fatal(err)
			}
			if !ok {
				break
			}
			rs = append(rs, r)
		}
		for {
			s, ok, err := p.send.Isend(Buffer{MR: smr, N: 16, Tag: 1})
			if err != nil {
				t.Fatal(err)
			}
			if !ok {
				break
			}
			ss = append(ss, s)
		}
		if len(rs) != MaxRequests || len(ss) != MaxRequests {
			t.Fatalf("round %d: %d receives and %d sends", round, len(rs), len(ss))
		}
		for i := range rs {
			if err := errors.Join(rs[i].Wait(t.Context(), nil), ss[i].Wait(t.Context(), nil)); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// TestRowInUse keeps a group's row while its first user has not read the sizes there.
func TestRowInUse(t *testing.T) {
	f := newFabric(t, 1, 1, memdriver.Config{}, nil)
	p := connect(t, f, Config{}, Config{})
	smr, _ := memory(t, &p.send.Comm, 4096)
	rmr, _ := memory(t, &p.recv.Comm, 4096)
	one := func() (r, s Request, ok bool) {
		r, ok, err := p.recv.Irecv(Buffer{MR: rmr, N: 16, Tag: 1})
		if err != nil {
			t.Fatal(err)
		}
		if !ok {
			return r, s, false
		}
		s, ok, err = p.send.Isend(Buffer{MR: smr, N: 7, Tag: 1})
		if !ok || err != nil {
			t.Fatal(ok, err)
		}
		return r, s, true
	}
	kept, s, _ := one()
	if err := s.Wait(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	for range MaxRequests - 1 {
		r, s, ok := one()
		if !ok {
			t.Fatal("no room for another row")
		}
		if err := errors.Join(r.Wait(t.Context(), nil), s.Wait(t.Context(), nil)); err != nil {
			t.Fatal(err)
		}
	}
	if _, _, ok := one(); ok {
		t.Fatal("a row was used again before its request had ended")
	}
	var got [1]int
	if err := kept.Wait(t.Context(), got[:]); err != nil || got[0] != 7 {
		t.Fatal(got, err)
	}
	r, s, ok := one()
	if !ok {
		t.Fatal("the row is free and was not taken")
	}
	if err := errors.Join(r.Wait(t.Context(), nil), s.Wait(t.Context(), nil)); err != nil {
		t.Fatal(err)
	}
}

func TestStaleRequest(t *testing.T) {
	f := newFabric(t, 1, 1, memdriver.Config{}, nil)
	p := connect(t, f, Config{}, Config{})
	rmr, _ := memory(t, &p.recv.Comm, 4096)
	smr, _ := memory(t, &p.send.Comm, 4096)
	r, _, err := p.recv.Irecv(Buffer{MR: rmr, N: 16, Tag: 1})
	if err != nil {
		t.Fatal(err)
	}
	if done, err := r.Test(nil); done || err != nil {
		t.Fatal(done, err)
	}
	s, ok, err := p.send.Isend(Buffer{MR: smr, N: 16, Tag: 1})
	if !ok || err != nil {
		t.Fatal(ok, err)
	}
	if err := errors.Join(s.Wait(t.Context(), nil), r.Wait(t.Context(), nil)); err != nil {
		t.Fatal(err)
	}
	again, _, err := p.recv.Irecv(Buffer{MR: rmr, N: 16, Tag: 1})
	if err != nil || again.slot != r.slot {
		t.Fatal(again, err)
	}
	for _, old := range []Request{r, s, {}} {
		if done, err := old.Test(nil); !done || !errors.Is(err, ErrStale) {
			t.Errorf("%v: %v, %v", old, done, err)
		}
	}
	if done, err := again.Test(nil); done || err != nil {
		t.Errorf("the new request of the slot: %v, %v", done, err)
	}
}

func TestTruncated(t *testing.T) {
	f := newFabric(t, 1, 1, memdriver.Config{}, nil)
	p := connect(t, f, Config{QPsPerConn: 4, Split: true}, Config{Split: true})
	smr, sb := memory(t, &p.send.Comm, 4096)
	rmr, rb := memory(t, &p.recv.Comm, 4096)
	random(sb, 1)
	for i, most := range []int{0, 1, 500} {
		r, _, err := p.recv.Irecv(Buffer{MR: rmr, N: most, Tag: 1})
		if err != nil {
			t.Fatal(err)
		}
		s, ok, err := p.send.Isend(Buffer{MR: smr, N: 1000, Tag: 1})
		if !ok || err != nil {
			t.Fatal(ok, err)
		}
		var sent, got [1]int
		if err := errors.Join(s.Wait(t.Context(), sent[:]), r.Wait(t.Context(), got[:])); err != nil {
			t.Fatal(err)
		}
		if sent[0] != most || got[0] != most || string(rb[:most]) != string(sb[:most]) || rb[most] != 0 {
			t.Errorf("%d of 1000 bytes: sent %d, got %d", most, sent[0], got[0])
		}
		if n := p.send.Stats().Truncated; n != uint64(i+1) {
			t.Errorf("%d truncated, want %d", n, i+1)
		}
	}
}

func TestNoAllocations(t *testing.T) {
	for _, c := range []Config{{}, {QPsPerConn: 4, Split: true}, {Inline: true, AdaptiveRouting: On, ARThreshold: 8}} {
		f := newFabric(t, 2, 1, memdriver.Config{}, nil)
		c.Timeout = defaultTimeout
		p := connect(t, f, c, c)
		smr, _ := memory(t, &p.send.Comm, 8192)
		rmr, _ := memory(t, &p.recv.Comm, 8192)
		for _, n := range []int{1, 3} {
			round := func() {
				var reqs [MaxRecvs]Request
				var bs [MaxRecvs]Buffer
				for i := range n {
					bs[i] = Buffer{MR: rmr, Off: 1000 * i, N: 1000, Tag: int32(i)}
				}
				r, ok, err := p.recv.Irecv(bs[:n]...)
				if !ok || err != nil {
					t.Fatal(ok, err)
				}
				for i := range n {
					if reqs[i], ok, err = p.send.Isend(Buffer{MR: smr, N: 900, Tag: int32(n - 1 - i)}); !ok || err != nil {
						t.Fatal(ok, err)
					}
				}
				if _, ok, _ := p.send.Isend(Buffer{MR: smr, N: 1}); ok {
					t.Fatal("sent without credit")
				}
				var sizes [MaxRecvs]int
				for i := range n {
					for {
						if done, err := reqs[i].Test(sizes[:]); err != nil {
							t.Fatal(err)
						} else if done {
							break
						}
					}
				}
				for {
					if done, err := r.Test(sizes[:]); err != nil {
						t.Fatal(err)
					} else if done {
						break
					}
				}
			}
			for range 300 {
				round() // the steady state
			}
			if a := testing.AllocsPerRun(500, round); a != 0 {
				t.Errorf("%+v, %d buffers: %v allocations", c, n, a)
			}
		}
	}
}
