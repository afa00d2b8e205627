package softroce

import (
	"context"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/purerdma/purerdma/ibverbs/driver"
	"github.com/purerdma/purerdma/ibverbs/softroce/internal/link"
	"github.com/purerdma/purerdma/ibverbs/softroce/internal/wire"
	"github.com/purerdma/purerdma/internal/mmio"
)

// polledNet is a network of two links on which packets are there at once, but nobody
// is told: who wants them has to poll.
type polledNet struct {
	mu    sync.Mutex
	links []*polledLink
}

type polledLink struct {
	Link
	net   *polledNet
	addr  netip.AddrPort
	came  []link.Datagrams
	acks  atomic.Int64 // sent
	sends atomic.Int64 // calls
	rouse chan struct{}
	stop  chan struct{}
}

func (n *polledNet) Open(a netip.Addr) (Link, error) {
	l := &polledLink{net: n, addr: netip.AddrPortFrom(a, wire.Port), rouse: make(chan struct{}), stop: make(chan struct{})}
	n.links = append(n.links, l)
	return l, nil
}

func (l *polledLink) LocalAddr() netip.AddrPort    { return l.addr }
func (l *polledLink) Source(uint32) netip.AddrPort { return l.addr }
func (l *polledLink) MTU() int                     { return 9000 }
func (l *polledLink) RecvBuffer() int              { return 1 << 20 }
func (l *polledLink) ShowsID() bool                { return false }
func (l *polledLink) Awaits() bool                 { return true }

func (l *polledLink) Await() error {
	select {
	case <-l.rouse:
		return nil
	case <-l.stop:
		return net.ErrClosed
	}
}

func (l *polledLink) Rouse() { l.rouse <- struct{}{} }

func (l *polledLink) Recv(context.Context, []link.Datagrams) (int, error) { return 0, l.Await() }

func (l *polledLink) Close() error {
	close(l.stop)
	return nil
}

func (l *polledLink) Send(batch []link.Datagrams) (int, error) {
	l.net.mu.Lock()
	defer l.net.mu.Unlock()
	l.sends.Add(1)
	for i := range batch {
		d := batch[i]
		for k := range d.Len() {
			if wire.BTH(d.Segment(k)).Opcode() == wire.RCAck {
				l.acks.Add(1)
			}
		}
		d.Data, d.Addr = append([]byte(nil), d.Data...), l.addr
		for _, to := range l.net.links {
			if to != l {
				to.came = append(to.came, d)
			}
		}
	}
	return len(batch), nil
}

func (l *polledLink) TryRecv(batch []link.Datagrams) (int, error) {
	l.net.mu.Lock()
	defer l.net.mu.Unlock()
	n := copy(batch, l.came)
	l.came = l.came[n:]
	return n, nil
}

// talker is an end of a connection that writes words into the peer's memory.
type talker struct {
	*udpEnd
	link *polledLink
	to   driver.Remote
	n    uint64 // words written
	done int    // completions
}

// talkers runs f with two ends on which nobody but f polls.
func talkers(t *testing.T, timeout uint8, f func(a, b *talker)) {
	synctest.Test(t, func(t *testing.T) {
		nw := new(polledNet)
		ea, eb := openDevices(t, New(Config{Addrs: []netip.Addr{addrA, addrB}, Network: nw}), "soft0", "soft1")
		x, y := newUDPEnd(t, ea), newUDPEnd(t, eb)
		x.connect(y)
		y.connect(x)
		synctest.Wait() // until the goroutines that take packets sleep
		a, b := &talker{udpEnd: x, link: nw.links[0]}, &talker{udpEnd: y, link: nw.links[1]}
		for _, e := range []struct{ from, to *talker }{{a, b}, {b, a}} {
			_, key := e.to.mr.Keys()
			e.from.to = driver.Remote{Addr: e.to.mem.Addr(), RKey: key}
			e.from.q.(*qp).attr.Timeout = timeout
		}
		f(a, b)
	})
}

func (e *talker) say() {
	e.t.Helper()
	e.n++
	wr := driver.SendWR{Op: driver.OpWrite, Flags: driver.Signaled, Inline: []byte{byte(e.n), byte(e.n >> 8), 0, 0, 0, 0, 0, 0}, Remote: e.to}
	if n, err := e.q.PostSend([]driver.SendWR{wr}); n != 1 || err != nil {
		e.t.Fatal(n, err)
	}
}

func (e *talker) poll() {
	e.t.Helper()
	var wcs [16]driver.WC
	n, err := e.cq.Poll(wcs[:])
	if err != nil {
		e.t.Fatal(err)
	}
	e.done += n
}

// hear polls until the peer's word n is there.
func (e *talker) hear(n uint64) {
	e.t.Helper()
	for polls := 0; mmio.LoadAcquire64((*uint64)(e.mem.Pointer())) != n; polls++ {
		if e.poll(); polls > 4 {
			e.t.Fatalf("word %d does not come", n)
		}
	}
}

// exchange is a word each way.
func exchange(a, b *talker) {
	a.t.Helper()
	a.say()
	b.hear(a.n)
	b.say()
	a.hear(b.n)
}

func TestAcksOfWhoAnswersAreFew(t *testing.T) {
	talkers(t, 18, func(a, b *talker) {
		const rounds = 50 * holdPackets
		for range rounds {
			exchange(a, b)
		}
		if a.link.acks.Load()+b.link.acks.Load() > 2*rounds/(holdPackets-1) {
			t.Errorf("%d rounds: %d and %d ACKs", rounds, a.link.acks.Load(), b.link.acks.Load())
		}
		for _, e := range []*talker{a, b} {
			if e.done < rounds-2*holdPackets {
				t.Errorf("%d rounds: %d completed", rounds, e.done)
			}
			if e.link.sends.Load() > rounds+4 {
				t.Errorf("%d rounds: sent in %d calls", rounds, e.link.sends.Load())
			}
		}
	})
}

// A peer that does not go on without the ACK gets it after some polls, and is not kept
// waiting again.
func TestAckComesToWhoWaits(t *testing.T) {
	talkers(t, 18, func(a, b *talker) {
		for round := range 200 {
			exchange(a, b)
			polls := 0
			for ; a.done <= round; polls++ {
				if b.poll(); polls > holdPolls+2 {
					t.Fatalf("round %d: no ACK after %d polls", round, polls)
				}
				a.poll()
			}
			if polls > 2 && round > 1 {
				t.Errorf("round %d: %d polls", round, polls)
			}
		}
	})
}

// A program whose requests have all completed may end at once.
func TestAckComesBeforeTheEnd(t *testing.T) {
	talkers(t, 18, func(a, b *talker) {
		exchange(a, b)
		if b.link.acks.Load() != 0 {
			t.Fatal("the ACK is not held")
		}
		for b.done == 0 {
			a.poll()
			b.poll()
		}
		if a.poll(); a.done != 1 || b.link.acks.Load() != 1 {
			t.Errorf("%d completed at the peer, %d ACKs", a.done, b.link.acks.Load())
		}
	})
}

// The timer sends what is held by a program that polls no more.
func TestAckComesWithoutPolls(t *testing.T) {
	talkers(t, 18, func(a, b *talker) {
		exchange(a, b)
		if b.link.acks.Load() != 0 {
			t.Fatal("the ACK is not held")
		}
		time.Sleep(ackLater)
		synctest.Wait()
		if a.poll(); a.done != 1 {
			t.Errorf("%d completed after %v", a.done, ackLater)
		}
	})
}

// The timer leaves to polls what they send soon.
func TestAckIsLeftToPolls(t *testing.T) {
	talkers(t, 18, func(a, b *talker) {
		think := func(e *talker) {
			for range holdPolls - 2 {
				e.poll()
			}
			time.Sleep(ackLater / 4)
			synctest.Wait()
		}
		for range holdPackets - 1 {
			a.say()
			think(a)
			b.hear(a.n)
			b.say()
			think(b)
			a.hear(b.n)
		}
		if b.link.acks.Load() != 0 {
			t.Errorf("%d ACKs", b.link.acks.Load())
		}
		time.Sleep(2 * ackLater)
		synctest.Wait()
		if b.link.acks.Load() != 1 {
			t.Errorf("%d ACKs when polls have stopped", b.link.acks.Load())
		}
	})
}

// Nothing waits long on a connection with a short time-out, and what closes takes its
// ACK along.
func TestAckIsNotHeld(t *testing.T) {
	for _, c := range []struct {
		timeout uint8
		held    bool
	}{{0, true}, {1, false}, {holdTimeout - 1, false}, {holdTimeout, true}, {18, true}} {
		talkers(t, c.timeout, func(a, b *talker) {
			exchange(a, b)
			if held := b.link.acks.Load() == 0; held != c.held {
				t.Errorf("time-out %d: %d ACKs", c.timeout, b.link.acks.Load())
			}
			if err := b.q.Close(); err != nil || b.link.acks.Load() != 1 {
				t.Errorf("time-out %d: closed with %d ACKs: %v", c.timeout, b.link.acks.Load(), err)
			}
		})
	}
}

// The goroutine that sleeps on the link is woken by polls that take packets, once, and
// sleeps again when they have stopped.
func TestPollsWakeTheSleeper(t *testing.T) {
	talkers(t, 18, func(a, b *talker) {
		sleeps := func() [2]bool {
			return [2]bool{a.q.(*qp).e.sleeps.Load(), b.q.(*qp).e.sleeps.Load()}
		}
		for range 3 {
			if s := sleeps(); s != [2]bool{true, true} {
				t.Fatal("before: asleep ", s)
			}
			for range rouseAfter {
				exchange(a, b)
			}
			synctest.Wait()
			if s := sleeps(); s != [2]bool{} {
				t.Fatal("while there are polls: asleep ", s)
			}
			for range 2 * rouseAfter {
				exchange(a, b)
			}
			time.Sleep(4 * restFor)
			synctest.Wait()
		}
	})
}
