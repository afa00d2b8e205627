package nettransport

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"syscall"
	"testing"

	"github.com/purerdma/purerdma/ibverbs/driver"
	"github.com/purerdma/purerdma/ibverbs/driver/memdriver"
	"github.com/purerdma/purerdma/mr"
	"github.com/purerdma/purerdma/socketboot"
)

// TestDataPath does what NCCL did in each recorded trace and compares every work request that both ends post.
func TestDataPath(t *testing.T) {
	golden := recordings(t)
	for _, s := range scripts {
		t.Run(s.name, func(t *testing.T) {
			want := golden[s.name+".receiver"]
			wires := &tap{}
			f := newFabric(t, s.devs, s.devs, memdriver.Config{}, func(d driver.Driver) driver.Driver { wires.Driver = d; return wires })
			p := connect(t, f, s.config(), s.config())
			wires.take()
			smr, _ := memory(t, &p.send.Comm, 64<<10)
			rmr, _ := memory(t, &p.recv.Comm, 64<<10)
			var rs, ss []Request
			var offers [][]Buffer
			for k, row := range want.rows {
				var bs []Buffer
				for i := range row {
					tag, room := offerOf(row[i])
					bs = append(bs, Buffer{MR: rmr, Off: 16384*k + 8192*i, N: room, Tag: tag})
				}
				r, ok, err := p.recv.Irecv(bs...)
				if !ok || err != nil {
					t.Fatal(ok, err)
				}
				rs, offers = append(rs, r), append(offers, bs)
			}
			for k, group := range s.sizes {
				for i, n := range group {
					r, ok, err := p.send.Isend(Buffer{MR: smr, Off: 64 * i, N: n, Tag: offers[k][i].Tag})
					if !ok || err != nil {
						t.Fatal(ok, err)
					}
					ss = append(ss, r)
				}
			}
			for _, r := range ss {
				if err := r.Wait(t.Context(), nil); err != nil {
					t.Fatal(err)
				}
			}
			flushes := 0
			for k, r := range rs {
				got := make([]int, len(s.sizes[k]))
				if err := r.Wait(t.Context(), got); err != nil || !slices.Equal(got, s.sizes[k]) {
					t.Fatalf("message %d: sizes %v, %v, want %v", k, got, err, s.sizes[k])
				}
				if s.flush {
					flushes += flushed(t, p, wires, offers[k])
				}
			}
			if flushes != want.flushes {
				t.Errorf("%d flushes, want %d", flushes, want.flushes)
			}

			for k := range want.rows {
				if used := p.send.credits.Buffer().Bytes()[512*k:][:64]; !bytes.Equal(used, make([]byte, 64)) {
					t.Errorf("the first offer of message %d is still there", k)
				}
			}
			posts := wires.take()
			staging := p.recv.credits.Buffer()
			var rows [][][]byte
			for k := range want.rows {
				var row [][]byte
				for i := range want.rows[k] {
					row = append(row, staging.Bytes()[512*k+64*i:][:64])
				}
				rows = append(rows, row)
			}
			compare(t, "receiver", ours(t, &p.recv.Comm, posts, staging.Bytes(), staging.Addr(), rows), want.lines(want.rows))
			if sender := golden[s.name+".sender"]; sender != nil {
				sizes := p.send.sizes.Buffer()
				compare(t, "sender", ours(t, &p.send.Comm, posts, sizes.Bytes(), sizes.Addr(), rows), sender.lines(sender.rows))
			}
		})
	}
}

// flushed flushes and compares the one read.
func flushed(t *testing.T, p *pair, wires *tap, bs []Buffer) int {
	t.Helper()
	before := wires.take()
	r, ok, err := p.recv.Flush(bs...)
	if !ok || err != nil {
		t.Fatal(ok, err)
	}
	if err := r.Wait(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	posts := wires.take()
	wires.posts = before
	if len(posts) != 1 || len(posts[0].send) != 1 {
		t.Fatalf("a flush posted %v", posts)
	}
	w := posts[0].send[0]
	if w.Op != driver.OpRead || w.Flags != driver.Signaled || w.SGL[0].Length != 1 || w.Remote.Addr != bs[0].MR.addr+uint64(bs[0].Off) {
		t.Errorf("a flush posted %+v", w)
	}
	return 1
}

func compare(t *testing.T, end string, got, want []string) {
	t.Helper()
	if len(want) == 0 {
		t.Fatalf("nothing recorded of the %s", end)
	}
	for i := range max(len(got), len(want)) {
		g, w := "(nothing)", "(nothing)"
		if i < len(got) {
			g = got[i]
		}
		if i < len(want) {
			w = want[i]
		}
		if g != w {
			t.Errorf("%s, post %d:\n got %s\nwant %s", end, i, g, w)
		}
	}
	if testing.Verbose() {
		fmt.Println(end, len(want), "posts compared, first:", want[0])
	}
}

// TestCreditsInTurn wants credits on the first queue pair of each of the receiver's devices in turn, and a completion for those
// whose row has the number of the device.
func TestCreditsInTurn(t *testing.T) {
	wires := &tap{}
	f := newFabric(t, 1, 3, memdriver.Config{}, func(d driver.Driver) driver.Driver { wires.Driver = d; return wires })
	p := connect(t, f, Config{QPsPerConn: 2}, Config{})
	wires.take()
	rmr, _ := memory(t, &p.recv.Comm, 4096)
	smr, _ := memory(t, &p.send.Comm, 4096)
	signaled := 0
	for k := range 800 {
		r, ok, err := p.recv.Irecv(Buffer{MR: rmr, N: 1})
		if !ok || err != nil {
			t.Fatal(ok, err)
		}
		for _, post := range wires.take() {
			if post.send == nil {
				continue
			}
			if want := p.recv.lanes[k%3].qp.Num(); post.qpn != want {
				t.Fatalf("credits of message %d are on QP %#x, want %#x", k, post.qpn, want)
			}
			if got, want := post.send[0].Flags == driver.Signaled, k%256 == k%3; got != want {
				t.Fatalf("credits of message %d ask for a completion: %v", k, got)
			} else if got {
				signaled++
			}
		}
		s, ok, err := p.send.Isend(Buffer{MR: smr, N: 1})
		if !ok || err != nil {
			t.Fatal(ok, err)
		}
		if err := errors.Join(r.Wait(t.Context(), nil), s.Wait(t.Context(), nil)); err != nil {
			t.Fatal(err)
		}
		wires.take()
	}
	if signaled != 6 {
		t.Errorf("%d of 800 credits asked for a completion", signaled)
	}
}

// TestImmediateData sends the length as NCCL's versions have it on the wire: 1500 is dc 05 00 00 up to 2.28.9, as seen there, and
// 00 00 05 dc later. Package ibverbs sends the most significant byte first.
func TestImmediateData(t *testing.T) {
	for layout, want := range map[socketboot.Layout]uint32{
		socketboot.Layout225: 0xdc050000, socketboot.Layout226: 0xdc050000, socketboot.Layout227: 0xdc050000, socketboot.Layout229: 0x000005dc,
	} {
		var imm []uint32
		f := newFabric(t, 1, 1, memdriver.Config{Observe: func(r memdriver.Request) {
			if r.Op == driver.OpWriteWithImm {
				imm = append(imm, r.Imm)
			}
		}}, nil)
		c := Config{Net: socketboot.Net{Layout: layout}}
		connect(t, f, c, c).transfer([]int{1500}, 1)
		if len(imm) != 1 || imm[0] != want {
			t.Errorf("%v: immediate data %#x, want %#x", layout, imm, want)
		}
	}
}

// TestNoRelaxedOrdering registers without it on a device that refuses it.
func TestNoRelaxedOrdering(t *testing.T) {
	b := newBench(t, Config{}, 1)
	for _, refusal := range []error{syscall.EINVAL, syscall.EOPNOTSUPP} {
		b.f.Device("a0").FailNext(memdriver.OpRegMR, refusal)
		m, _ := memory(t, &b.send.Comm, 64)
		closeMRs(t, m)
	}
	b.f.Device("a0").FailNext(memdriver.OpRegMR, syscall.ENOMEM)
	buf, err := mr.Alloc(64)
	if err != nil {
		t.Fatal(err)
	}
	defer buf.Close()
	if _, err := b.send.RegMR(buf); !errors.Is(err, syscall.ENOMEM) {
		t.Error(err)
	}
}
