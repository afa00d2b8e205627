package link

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/purerdma/purerdma/ibverbs/softroce/internal/wire"
)

var (
	addrA = netip.MustParseAddr("10.0.0.1")
	addrB = netip.MustParseAddr("10.0.0.2")
)

func simPair(t testing.TB, cfg SimConfig) (s *Sim, a, b *SimLink) {
	t.Helper()
	s = NewSim(cfg)
	a, errA := s.Listen(addrA)
	b, errB := s.Listen(addrB)
	if err := errors.Join(errA, errB); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { a.Close(); b.Close() })
	return s, a, b
}

// packet has a PSN and a body made of it.
func packet(qpn uint32, psn, size int) []byte {
	p := wire.Make(make([]byte, wire.Size(wire.RCSendOnly, size)), wire.RCSendOnly, size)
	p.BTH().Put(wire.RCSendOnly, 0, 0xffff, qpn, wire.PSN(psn))
	for i := range p.Payload() {
		p.Payload()[i] = byte(psn + i)
	}
	return p.Bytes()
}

// stretch is n packets in one Datagrams.
func stretch(to netip.AddrPort, first, n, size int) Datagrams {
	var b []byte
	for i := range n {
		b = append(b, packet(7, first+i, size)...)
	}
	return Datagrams{Addr: to, Seg: wire.Size(wire.RCSendOnly, size), Data: b}
}

func sendAll(t testing.TB, l Link, batch ...Datagrams) {
	t.Helper()
	if n, err := l.Send(batch); n != len(batch) || err != nil {
		t.Fatalf("Send gave %d, %v for %d", n, err, len(batch))
	}
}

// drain gives the PSNs that are there, and checks that each segment has the
// Identification that the sender sealed for where it is told.
func drain(t testing.TB, l Link) (psns []int, runs int) {
	t.Helper()
	batch := make([]Datagrams, 4)
	for {
		n, err := l.TryRecv(batch)
		if err != nil {
			t.Fatal(err)
		}
		if n == 0 {
			return psns, runs
		}
		runs += n
		for i := range batch[:n] {
			for k := range batch[i].Len() {
				psns = append(psns, int(wire.BTH(batch[i].Segment(k)).PSN()))
			}
		}
	}
}

func upTo(n int) (all []int) {
	for i := range n {
		all = append(all, i)
	}
	return all
}

func TestSimDeliversRunsWhole(t *testing.T) {
	_, a, b := simPair(t, SimConfig{})
	sendAll(t, a, stretch(b.LocalAddr(), 0, 1, 40), stretch(b.LocalAddr(), 1, 20, 1000))
	batch := make([]Datagrams, 4)
	n, err := b.Recv(context.Background(), batch)
	if n != 2 || err != nil {
		t.Fatalf("Recv gave %d, %v", n, err)
	}
	if batch[1].Len() != 20 || batch[1].Addr != a.LocalAddr() || batch[1].ID != 0 {
		t.Fatalf("the run came as %d segments from %v, ID %d", batch[1].Len(), batch[1].Addr, batch[1].ID)
	}
	if want := stretch(b.LocalAddr(), 1, 20, 1000).Data; !bytes.Equal(batch[1].Data, want) {
		t.Error("bytes differ")
	}
}

func TestSimSplit(t *testing.T) {
	_, a, b := simPair(t, SimConfig{Split: true})
	sendAll(t, a, stretch(b.LocalAddr(), 0, 5, 100))
	if psns, runs := drain(t, b); runs != 5 || !slices.Equal(psns, upTo(5)) {
		t.Fatalf("%d runs with %v", runs, psns)
	}
}

func TestSimSourcePort(t *testing.T) {
	_, a, b := simPair(t, SimConfig{})
	src := a.Source(0xdeadbeef)
	d := stretch(b.LocalAddr(), 0, 1, 8)
	d.SrcPort = src.Port()
	sendAll(t, a, d)
	batch := make([]Datagrams, 1)
	if n, _ := b.TryRecv(batch); n != 1 || batch[0].Addr != src || src.Port() < flowPorts {
		t.Fatalf("came from %v, sent from %v", batch[0].Addr, src)
	}
}

func TestSimHooks(t *testing.T) {
	ours := func(p *SimPacket) bool { return wire.BTH(p.Data).QPN() == 7 }
	for _, c := range []struct {
		fate Fate
		want []int
		runs int
	}{
		{Drop, []int{0, 1, 3, 4, 5}, 2},
		{Twice, []int{0, 1, 2, 2, 3, 4, 5}, 4},
		{Swap, []int{0, 1, 3, 2, 4, 5}, 4},
		{Clean, upTo(6), 1},
	} {
		s, a, b := simPair(t, SimConfig{})
		remove := s.Hook(Nth(c.fate, ours, 3))
		sendAll(t, a, stretch(b.LocalAddr(), 0, 6, 64))
		if psns, _ := drain(t, b); !slices.Equal(psns, c.want) {
			t.Errorf("fate %d: %v, want %v", c.fate, psns, c.want)
		}
		remove()
		sendAll(t, a, stretch(b.LocalAddr(), 0, 6, 64))
		if psns, runs := drain(t, b); runs != 1 || !slices.Equal(psns, upTo(6)) {
			t.Errorf("after remove: %d runs with %v", runs, psns)
		}
	}
}

func TestSimKeepsIDsOfWhatIsLeft(t *testing.T) {
	s, a, b := simPair(t, SimConfig{})
	path := wire.NewPath(a.LocalAddr(), b.LocalAddr())
	d := stretch(b.LocalAddr(), 0, 10, 100)
	for k := range d.Len() {
		path.Seal(d.Segment(k), uint16(k))
	}
	s.Hook(Nth(Drop, func(*SimPacket) bool { return true }, 1, 4, 5))
	s.Hook(Nth(Swap, func(*SimPacket) bool { return true }, 5))
	sendAll(t, a, d)
	batch, seen := make([]Datagrams, 8), 0
	n, _ := b.TryRecv(batch)
	for _, d := range batch[:n] {
		for k := range d.Len() {
			seen++
			if !path.Verify(d.Segment(k), d.ID+uint16(k)) {
				t.Errorf("PSN %d came with ID %d", wire.BTH(d.Segment(k)).PSN(), d.ID+uint16(k))
			}
		}
	}
	if seen != 7 {
		t.Errorf("%d packets came", seen)
	}
}

// traffic sends n packets under faults and gives what came, in order, until the
// network is empty.
func traffic(seed uint64, f Faults, n int) (psns []int) {
	s := NewSim(SimConfig{Seed: seed, Faults: f})
	a, _ := s.Listen(addrA)
	b, _ := s.Listen(addrB)
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	for i := 0; i < n; i += 10 {
		a.Send([]Datagrams{stretch(b.LocalAddr(), i, 10, 64)})
		time.Sleep(10 * time.Microsecond)
	}
	batch := make([]Datagrams, 4)
	for {
		m, err := b.Recv(ctx, batch)
		if err != nil {
			return psns
		}
		for _, d := range batch[:m] {
			for k := range d.Len() {
				psns = append(psns, int(wire.BTH(d.Segment(k)).PSN()))
			}
		}
	}
}

func TestSimSameSeedSameTraffic(t *testing.T) {
	f := Faults{Loss: .05, Duplicate: .1, Reorder: .05, Corrupt: .02, Delay: 20 * time.Microsecond, Jitter: 30 * time.Microsecond}
	synctest.Test(t, func(t *testing.T) {
		one, two, other := traffic(1, f, 1000), traffic(1, f, 1000), traffic(2, f, 1000)
		if !slices.Equal(one, two) {
			t.Error("the same seed gave other traffic")
		}
		if slices.Equal(one, other) {
			t.Error("another seed gave the same traffic")
		}
	})
}

func TestSimRates(t *testing.T) {
	const n = 10_000
	synctest.Test(t, func(t *testing.T) {
		if got := len(traffic(3, Faults{Loss: .3}, n)); got < n*66/100 || got > n*74/100 {
			t.Errorf("30 %% loss left %d of %d", got, n)
		}
		if got := len(traffic(3, Faults{Duplicate: .1}, n)); got < n*108/100 || got > n*112/100 {
			t.Errorf("10 %% duplication made %d of %d", got, n)
		}
		got := traffic(3, Faults{Reorder: .05}, n)
		late, sorted := 0, slices.Clone(got)
		slices.Sort(sorted)
		if !slices.Equal(sorted, upTo(n)) {
			t.Fatal("reordering lost or doubled packets")
		}
		highest := -1
		for i, psn := range got {
			if highest = max(highest, psn); psn < highest {
				late++
			}
			if d := i - psn; d > 8 || d < -8 {
				t.Errorf("packet %d came at place %d", psn, i)
			}
		}
		if late < n*4/100 || late > n*6/100 {
			t.Errorf("5 %% reordering made %d of %d late", late, n)
		}
	})
}

func TestSimLastPacketIsNotHeldForEver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, a, b := simPair(t, SimConfig{})
		s.Hook(Nth(Swap, func(*SimPacket) bool { return true }, 1))
		start := time.Now()
		sendAll(t, a, stretch(b.LocalAddr(), 0, 1, 64))
		n, err := b.Recv(t.Context(), make([]Datagrams, 1))
		if d := time.Since(start); n != 1 || err != nil || d != 100*time.Microsecond {
			t.Errorf("Recv gave %d, %v after %v", n, err, d)
		}
	})
}

func TestSimDelay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, a, b := simPair(t, SimConfig{Faults: Faults{Delay: time.Millisecond}})
		start := time.Now()
		sendAll(t, a, stretch(b.LocalAddr(), 0, 3, 64))
		n, err := b.Recv(t.Context(), make([]Datagrams, 4))
		if d := time.Since(start); n != 1 || err != nil || d != time.Millisecond {
			t.Errorf("Recv gave %d, %v after %v", n, err, d)
		}
	})
}

func TestSimDamageIsFound(t *testing.T) {
	_, a, b := simPair(t, SimConfig{Seed: 5, Faults: Faults{Corrupt: 1}, RecvBuffer: 64 << 20})
	path := wire.NewPath(a.LocalAddr(), b.LocalAddr())
	const n = 2000
	for i := range n {
		p := packet(7, i, 100)
		path.Seal(p, 0)
		sendAll(t, a, Datagrams{Addr: b.LocalAddr(), Data: p})
	}
	batch, passed := make([]Datagrams, 64), 0
	for {
		m, _ := b.TryRecv(batch)
		if m == 0 {
			break
		}
		for _, d := range batch[:m] {
			want := packet(7, int(wire.BTH(d.Data).PSN()), 100)
			d.Data[4], want[4] = 0, 0 // outside the ICRC
			if path.Verify(d.Data, d.ID) {
				passed++
				if !bytes.Equal(d.Data[:len(want)-4], want[:len(want)-4]) {
					t.Fatal("a damaged packet has a right ICRC")
				}
			}
		}
	}
	if passed == n || passed > n/20 {
		t.Errorf("%d of %d damaged packets passed", passed, n)
	}
}

func TestSimMark(t *testing.T) {
	_, a, b := simPair(t, SimConfig{Faults: Faults{Mark: 1}})
	for _, c := range []struct{ sent, want uint8 }{{0, 0}, {2, 3}, {0x69, 0x6b}} {
		d := stretch(b.LocalAddr(), 0, 1, 8)
		d.TOS = c.sent
		sendAll(t, a, d)
		batch := make([]Datagrams, 1)
		if b.TryRecv(batch); batch[0].TOS != c.want {
			t.Errorf("TOS %#x came as %#x", c.sent, batch[0].TOS)
		}
	}
}

func TestSimPortAndBlock(t *testing.T) {
	s, a, b := simPair(t, SimConfig{})
	var told []bool
	b.OnPort(func(up bool) { told = append(told, up) })
	one := stretch(b.LocalAddr(), 1, 1, 8)
	expect := func(what string, want int) {
		t.Helper()
		if psns, _ := drain(t, b); len(psns) != want {
			t.Errorf("%s: %d packets came, want %d", what, len(psns), want)
		}
	}
	sendAll(t, a, one)
	s.SetPort(addrB, false)
	expect("on the way when the port went down", 0)
	sendAll(t, a, one)
	expect("sent to a port that is down", 0)
	s.SetPort(addrB, false)
	s.SetPort(addrB, true)
	sendAll(t, a, one)
	expect("sent to a port that is up again", 1)
	if !slices.Equal(told, []bool{false, true}) || !b.Up() {
		t.Errorf("watcher was told %v", told)
	}
	s.Block(addrA, addrB, true)
	sendAll(t, a, one)
	expect("sent into a black hole", 0)
	sendAll(t, b, Datagrams{Addr: a.LocalAddr(), Data: packet(1, 1, 8)})
	if psns, _ := drain(t, a); len(psns) != 1 {
		t.Error("the way back was blocked too")
	}
	s.Block(addrA, addrB, false)
	sendAll(t, a, one)
	expect("after the black hole", 1)
	s.Inject(netip.MustParseAddrPort("1.2.3.4:5"), addrB, []byte("x"))
	forged := make([]Datagrams, 1)
	if n, _ := b.TryRecv(forged); n != 1 || forged[0].Addr.Port() != 5 {
		t.Errorf("injected packet: %+v", forged[0])
	}
}

func TestSimFullBufferDrops(t *testing.T) {
	_, a, b := simPair(t, SimConfig{RecvBuffer: 10 * (charge + 116)})
	for i := range 15 {
		sendAll(t, a, stretch(b.LocalAddr(), i, 1, 100))
	}
	if psns, _ := drain(t, b); !slices.Equal(psns, upTo(10)) || b.Stats().RecvDropped != 5 {
		t.Errorf("%v came, %d dropped", psns, b.Stats().RecvDropped)
	}
}

func TestSimClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, a, b := simPair(t, SimConfig{})
		got := make(chan error)
		go func() {
			_, err := b.Recv(context.Background(), make([]Datagrams, 1))
			got <- err
		}()
		synctest.Wait()
		b.Close()
		if err := <-got; !errors.Is(err, net.ErrClosed) {
			t.Errorf("Recv ended with %v", err)
		}
		if err := b.Close(); err != nil {
			t.Errorf("second Close: %v", err)
		}
		if _, err := b.Send(nil); !errors.Is(err, net.ErrClosed) {
			t.Errorf("Send after Close: %v", err)
		}
		if c, err := s.Listen(addrB); err != nil {
			t.Errorf("address not free: %v", err)
		} else {
			c.Close()
		}
		if _, err := s.Listen(addrA); err == nil {
			t.Error("an address was given twice")
		}
		cause := fmt.Errorf("enough")
		ctx, cancel := context.WithCancelCause(context.Background())
		cancel(cause)
		if _, err := a.Recv(ctx, make([]Datagrams, 1)); !errors.Is(err, cause) || !errors.Is(err, context.Canceled) {
			t.Errorf("Recv with a done context: %v", err)
		}
	})
}

func TestSimAllocatesNothing(t *testing.T) {
	for name, f := range map[string]Faults{"clean": {}, "faulty": {Loss: .1, Duplicate: .1, Reorder: .1}} {
		_, a, b := simPair(t, SimConfig{Faults: f})
		batch, in := []Datagrams{stretch(b.LocalAddr(), 0, 16, 1000)}, make([]Datagrams, 8)
		step := func() {
			a.Send(batch)
			for {
				if n, _ := b.TryRecv(in); n == 0 {
					break
				}
			}
		}
		for range 200 {
			step()
		}
		if n := testing.AllocsPerRun(200, step); n > 0 {
			t.Errorf("%s: %v allocations", name, n)
		}
	}
}
