package nettransport

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"runtime"
	"testing"
	"time"

	"github.com/purerdma/purerdma/ibverbs/driver/memdriver"
	"github.com/purerdma/purerdma/qp"
	"github.com/purerdma/purerdma/socketboot"
)

// TestUnequalNICs is 1 to 4 devices against 1 to 4, so 1 to 16 queue pairs, with single messages and groups.
func TestUnequalNICs(t *testing.T) {
	for sends := 1; sends <= 4; sends++ {
		for recvs := 1; recvs <= 4; recvs++ {
			for _, qps := range []int{1, 4} {
				for _, split := range []bool{false, true} {
					t.Run(fmt.Sprintf("%d to %d/qps=%d/split=%v", sends, recvs, qps, split), func(t *testing.T) {
						t.Parallel()
						f := newFabric(t, sends, recvs, memdriver.Config{}, nil)
						c := Config{QPsPerConn: qps, Split: split}
						p := connect(t, f, c, c)
						if n := max(sends, recvs) * qps; len(p.send.Paths()) != n || len(p.recv.Paths()) != n {
							t.Fatalf("%d and %d queue pairs, want %d", len(p.send.Paths()), len(p.recv.Paths()), n)
						}
						p.transfer(edges(4)[:14], 1)
						p.groups(12, rand.Uint64())
					})
				}
			}
		}
	}
}

// groups moves groups of random numbers of buffers, with tags in another order at each end, messages shorter and longer than
// the buffers, several groups in flight.
func (p *pair) groups(count int, seed uint64) {
	t := p.t
	t.Helper()
	defer func() {
		if t.Failed() {
			t.Logf("seed %d", seed)
		}
	}()
	r := rand.New(rand.NewPCG(seed, 3))
	const room, depth = 5000, 4
	smr, sb := memory(t, &p.send.Comm, depth*MaxRecvs*2*room)
	rmr, rb := memory(t, &p.recv.Comm, depth*MaxRecvs*2*room)
	defer closeMRs(t, smr, rmr)
	random(sb, seed)
	type message struct{ tag, sent, room int }
	for done := 0; done < count; {
		var recvs [depth]Request
		var groups [depth][]message
		for g := range recvs {
			n := 1 + r.IntN(MaxRecvs)
			var bs []Buffer
			for i := range n {
				m := message{tag: r.IntN(3), sent: r.IntN(room), room: r.IntN(room)}
				groups[g] = append(groups[g], m)
				bs = append(bs, Buffer{MR: rmr, Off: (g*MaxRecvs + i) * room, N: m.room, Tag: int32(m.tag)})
			}
			q, ok, err := p.recv.Irecv(bs...)
			if !ok || err != nil {
				t.Fatal(ok, err)
			}
			recvs[g] = q
		}
		for g, group := range groups {
			// Any order between tags, but the order of offers within one.
			order := r.Perm(len(group))
			next := map[int]int{}
			var sends []Request
			for _, pick := range order {
				tag := group[pick].tag
				i := next[tag]
				for group[i].tag != tag {
					i++
				}
				next[tag] = i + 1
				sends = append(sends, p.mustSend(Buffer{MR: smr, Off: (g*MaxRecvs + i) * room, N: group[i].sent, Tag: int32(tag)}))
				if _, ok, _ := p.send.Isend(Buffer{MR: smr, N: 1, Tag: 99}); ok {
					t.Fatal("a tag that was not offered was taken")
				}
			}
			for _, q := range sends {
				if err := q.Wait(t.Context(), nil); err != nil {
					t.Fatal(err)
				}
			}
			got := make([]int, len(group))
			if err := recvs[g].Wait(t.Context(), got); err != nil {
				t.Fatal(err)
			}
			for i, m := range group {
				at := (g*MaxRecvs + i) * room
				if want := min(m.sent, m.room); got[i] != want || !bytes.Equal(rb[at:][:want], sb[at:][:want]) {
					t.Fatalf("group %d, buffer %d of %d, tag %d: %d bytes, want %d", done, i, len(group), m.tag, got[i], want)
				}
			}
			done++
		}
	}
}

// mustSend sends when there is credit, for which a real device takes its time.
func (p *pair) mustSend(b Buffer) Request {
	p.t.Helper()
	for end := time.Now().Add(10 * time.Second); time.Now().Before(end); runtime.Gosched() {
		q, ok, err := p.send.Isend(b)
		if err != nil {
			p.t.Fatal(err)
		}
		if ok {
			return q
		}
	}
	p.t.Fatal("no credit")
	return Request{}
}

// TestLayouts moves messages and groups in the bytes of each range of NCCL versions, with as many devices as it has room for.
func TestLayouts(t *testing.T) {
	for l := socketboot.Layout225; l <= socketboot.Layout230; l++ {
		t.Run(l.String(), func(t *testing.T) {
			f := newFabric(t, l.MaxDevs(), 2, memdriver.Config{}, nil)
			c := Config{Net: socketboot.Net{Layout: l}, QP: []qp.Option{qp.WithTrafficClass(104), qp.WithServiceLevel(3)}}
			r := Config{Net: c.Net, RecvQP: []qp.Option{qp.WithServiceLevel(2)}}
			p := connect(t, f, c, r)
			p.transfer(edges(4)[:14], 1)
			p.groups(8, 1)
			send, recv := p.send.Paths()[0], p.recv.Paths()[0]
			want := uint8(0)
			if l.HasTrafficClass() {
				want = 104 // as the connector tells
			}
			if send.TrafficClass != 104 || send.ServiceLevel != 3 || recv.TrafficClass != want || recv.ServiceLevel != 2 {
				t.Errorf("paths %v and %v", send, recv)
			}
		})
	}
	f := newFabric(t, 5, 1, memdriver.Config{}, nil)
	_, err := New(Config{NICs: []NIC{f.send}, Log: quiet})
	tells(t, err, "5 ports", "1 to 4")
}
