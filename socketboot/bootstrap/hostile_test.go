package bootstrap

import (
	"bytes"
	"encoding/binary"
	"net"
	"net/netip"
	"testing"
	"time"
)

// Strangers of each kind at every listener: the job meets and talks beside them.
func TestStrangers(t *testing.T) {
	magic := uint64(0)
	bother := func(a netip.AddrPort) {
		for _, bytes := range [][]byte{nil, {1}, []byte("GET / HTTP/1.1\r\n\r\n"), hello(magic)[:8], hello(magic), append(hello(magic), 0xff, 0xff, 0xff, 0x7f),
			append(hello(magic), 0xff, 0xff, 0xff, 0xff), append(hello(magic), frame(pair(99, 1))...), append(hello(magic^1), frame(pair(0, 1))...),
			append(append(hello(magic), frame(pair(0, 1))...), 0, 0, 0, 0x40)} {
			for range 3 {
				c, err := net.Dial("tcp", a.String())
				if err != nil {
					t.Error(err)
					return
				}
				_, _ = c.Write(bytes)
				t.Cleanup(func() { _ = c.Close() })
			}
		}
	}
	n := loopback(t, ip4)
	r := root(t, RootConfig{Net: n})
	magic = r.ID().Magic()
	bother(r.ID().Root())
	members := make([]*Member, 3)
	each(3, func(rank int) {
		m, err := Join(soon(t), Config{ID: r.ID(), Rank: rank, Size: 3, Net: n, Limits: Limits{Pending: 8}})
		if err != nil {
			t.Errorf("rank %d: %v", rank, err)
			return
		}
		members[rank] = m
	})
	if t.Failed() {
		return
	}
	defer each(3, func(rank int) { _ = members[rank].Close() })
	bother(netip.MustParseAddrPort(members[0].Addr(1)))
	if err := members[0].Send(soon(t), 1, 1, []byte("in between")); err != nil {
		t.Error(err)
	}
	if b, err := members[1].Recv(soon(t), 0, 1); err != nil || string(b) != "in between" {
		t.Errorf("%q, %v", b, err)
	}
}

// A rank of a job that is over comes to a port that another job has now: it is refused at once, long before a deadline, and that job
// meets as if it had not come.
func TestRankOfAnotherJob(t *testing.T) {
	n := loopback(t, ip4)
	n.Deadlines.Hello = time.Hour
	old, now := root(t, RootConfig{Net: n}), root(t, RootConfig{Net: n})
	if old.ID().Magic() == now.ID().Magic() {
		t.Fatal("two jobs have one magic")
	}
	c, err := net.Dial("tcp", now.ID().Root().String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := c.Write(hello(old.ID().Magic())); err != nil {
		t.Fatal(err)
	}
	_ = c.SetReadDeadline(time.Now().Add(time.Minute))
	if n, err := c.Read(make([]byte, 1)); n > 0 || err == nil {
		t.Error("a rank of another job got bytes")
	} else if e, ok := err.(net.Error); ok && e.Timeout() {
		t.Error("a rank of another job was kept")
	}
	stale := joinSoon(t, Config{ID: IDFor(now.ID().Root(), old.ID().Magic()), Rank: 0, Size: 2, Net: n, Timeout: 100 * time.Millisecond})
	each(2, func(rank int) {
		m, err := Join(soon(t), Config{ID: now.ID(), Rank: rank, Size: 2, Net: n})
		if err != nil {
			t.Errorf("rank %d: %v", rank, err)
			return
		}
		if err := m.Barrier(soon(t)); err != nil {
			t.Errorf("rank %d: %v", rank, err)
		}
		_ = m.Close()
	})
	if err := <-stale; err == nil {
		t.Error("a rank of another job has met")
	} else {
		t.Log(err)
	}
}

// A peer that shows nothing is dropped after the deadline.
func TestSilentStrangerIsDropped(t *testing.T) {
	n := loopback(t, ip4)
	n.Deadlines.Hello = 20 * time.Millisecond
	r := root(t, RootConfig{Net: n})
	c, err := net.Dial("tcp", r.ID().Root().String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	_ = c.SetReadDeadline(time.Now().Add(20 * time.Second))
	if n, err := c.Read(make([]byte, 1)); n > 0 || err == nil {
		t.Error("a stranger got bytes")
	} else if e, ok := err.(net.Error); ok && e.Timeout() {
		t.Error("a silent stranger was kept")
	}
}

func FuzzExtInfo(f *testing.F) {
	e := extInfo{rank: 3, size: 8, root: netip.MustParseAddrPort("192.0.2.1:1"), ring: netip.MustParseAddrPort("[2001:db8::1]:2")}
	f.Add(e.append(nil))
	mapped := e.append(nil)
	at := bytes.Index(mapped, e.ring.Addr().AsSlice())
	copy(mapped[at:], netip.MustParseAddr("::ffff:192.0.2.7").AsSlice())
	f.Add(mapped)
	f.Fuzz(func(t *testing.T, b []byte) {
		e, err := decodeExtInfo(b, MaxRanks)
		if err != nil {
			return
		}
		if again, err := decodeExtInfo(e.append(nil), MaxRanks); err != nil || again != e {
			t.Fatalf("%+v became %+v, %v", e, again, err)
		}
	})
}

func FuzzNotice(f *testing.F) {
	n := notice{rank: 3, kind: died, took: 7, text: "why"}
	f.Add(n.frame())
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) < 4 || int32(binary.LittleEndian.Uint32(b)) != noticeMark {
			return
		}
		n, err := readNotice(bytes.NewReader(b[4:]), 8)
		if err != nil {
			return
		}
		again := n.frame()
		text := b[4+noticeLen:]
		text = text[:binary.LittleEndian.Uint32(b[noticeLen:])]
		if printable(text) == string(text) && !bytes.Equal(again, b[:len(again)]) {
			t.Fatalf("%x became %x", b, again)
		}
		if same, err := readNotice(bytes.NewReader(again[4:]), 8); err != nil || same != n {
			t.Fatalf("%+v became %+v, %v", n, same, err)
		}
		_ = n.reason().Error()
	})
}

// What a peer says about a rank goes into errors and logs, but not what would act on a terminal.
func TestNoticeIsPrintable(t *testing.T) {
	n := notice{rank: 1, kind: aborted, text: "no\x1b[2J\rroom\x00 für\nall"}
	got, err := readNotice(bytes.NewReader(n.frame()[4:]), 2)
	if want := "no.[2J.room. für\nall"; err != nil || got.text != want {
		t.Errorf("%q, %v, want %q", got.text, err, want)
	}
}
