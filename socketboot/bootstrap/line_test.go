package bootstrap

import (
	"errors"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"
)

// holds waits until so many ranks have come, of which the root holds so many.
func (r *Root) holds(t *testing.T, came, held int) {
	t.Helper()
	for ctx := soon(t); ; time.Sleep(time.Millisecond) {
		r.mu.Lock()
		now, lines := len(r.came), len(r.lines)
		r.mu.Unlock()
		if now == came && lines == held {
			return
		}
		if ctx.Err() != nil {
			t.Fatalf("%d have come, %d are held; want %d and %d", now, lines, came, held)
		}
	}
}

// kill ends a root as the death of its process does: without a word.
func (r *Root) kill() {
	r.mu.Lock()
	r.over = true
	if r.timer != nil {
		r.timer.Stop()
	}
	for _, g := range r.lines {
		_ = g.Close()
	}
	r.mu.Unlock()
	r.door.close()
}

// A rank that dies, or gives up, after it has reported and while others have yet to come, ends the meeting: those that wait learn which
// it was.
func TestDeathBeforeAllHaveCome(t *testing.T) {
	const n, dead = 4, 2
	for name, c := range map[string]struct {
		last notice
		want error
	}{
		"dies":     {want: ErrDied},
		"gives up": {notice{kind: aborted, text: "no device"}, ErrAborted},
	} {
		t.Run(name, func(t *testing.T) {
			network := loopback(t, ip4)
			r := root(t, RootConfig{Net: network})
			p := newPuppet(t)
			line := p.report(r.ID(), dead, n)
			p.expect(line, "feffffff")
			p.say(line, "feffffff")
			one, three := joinSoon(t, Config{ID: r.ID(), Rank: 1, Size: n, Net: network}), joinSoon(t, Config{ID: r.ID(), Rank: 3, Size: n, Net: network})
			r.holds(t, 3, 3)
			if c.last.text != "" {
				_, _ = line.Write(c.last.frame())
			}
			_ = line.Close()
			p.close()
			for _, err := range []error{<-one, <-three} {
				names(t, err, dead, c.want, c.last.text)
			}
			<-r.Met()
			names(t, r.Err(), dead, c.want, c.last.text)
			names(t, <-joinSoon(t, Config{ID: r.ID(), Rank: 0, Size: n, Net: network}), dead, c.want, "after the end")
		})
	}
}

// A rank whose Join ends tells why, and the others need not wait for it.
func TestJoinGivenUp(t *testing.T) {
	network := loopback(t, ip4)
	r := root(t, RootConfig{Net: network})
	one := joinSoon(t, Config{ID: r.ID(), Rank: 1, Size: 3, Net: network, Timeout: time.Minute})
	r.holds(t, 1, 1)
	two := joinSoon(t, Config{ID: r.ID(), Rank: 2, Size: 3, Net: network, Timeout: 100 * time.Millisecond})
	if err := <-two; !errors.Is(err, ErrMissing) {
		t.Errorf("got %v", err)
	}
	names(t, <-one, 2, ErrAborted, "deadline")
}

// The root's process ends: the ranks that have reported to it do not wait any longer.
func TestDeathOfTheRoot(t *testing.T) {
	network := loopback(t, ip4)
	r := root(t, RootConfig{Net: network})
	one, two := joinSoon(t, Config{ID: r.ID(), Rank: 1, Size: 3, Net: network}), joinSoon(t, Config{ID: r.ID(), Rank: 2, Size: 3, Net: network})
	r.holds(t, 2, 2)
	r.kill()
	for _, err := range []error{<-one, <-two} {
		if !errors.Is(err, ErrNoRoot) || !strings.Contains(err.Error(), r.ID().Root().String()) {
			t.Errorf("got %v", err)
		}
	}
}

// Whoever makes the root can end the meeting for a reason of its own.
func TestFail(t *testing.T) {
	network := loopback(t, ip4)
	r := root(t, RootConfig{Net: network})
	one := joinSoon(t, Config{ID: r.ID(), Rank: 1, Size: 3, Net: network})
	r.holds(t, 1, 1)
	r.Fail(errors.New("rank 2 could not be started"))
	if err := <-one; err == nil || !strings.Contains(err.Error(), "rank 2 could not be started") {
		t.Errorf("got %v", err)
	}
}

// A root of NCCL closes the connection of a rank that has reported: that is not its end.
func TestRootThatHoldsNoConnection(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	id := IDFor(netip.MustParseAddrPort(ln.Addr().String()), 7)
	joined := joinSoon(t, Config{ID: id, Rank: 1, Size: 2, Net: loopback(t, ip4)})
	c, err := ln.Accept()
	if err != nil {
		t.Fatal(err)
	}
	if err := readHello(c, 7); err != nil {
		t.Fatal(err)
	}
	b, err := readFrame(c, extInfoLen)
	if err != nil {
		t.Fatal(err)
	}
	e, err := decodeExtInfo(b, 2)
	if err != nil {
		t.Fatal(err)
	}
	_ = c.Close()
	answer, err := dial(soon(t), loopback(t, ip4), e.root, 7)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Close()
	_, _ = answer.Write((&notice{rank: 1, kind: absent, text: "rank 0"}).frame())
	if err := <-joined; !errors.Is(err, ErrMissing) || errors.Is(err, ErrNoRoot) || !strings.Contains(err.Error(), "rank 0") {
		t.Errorf("got %v", err)
	}
}
