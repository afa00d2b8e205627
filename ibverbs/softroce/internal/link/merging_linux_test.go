package link

import (
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/purerdma/purerdma/ibverbs/softroce/internal/wire"
)

// merges asks the kernel.
func merges(t *testing.T, u *UDP) bool {
	t.Helper()
	on := 0
	var err error
	if e := u.main.raw.Control(func(fd uintptr) { on, err = unix.GetsockoptInt(int(fd), unix.IPPROTO_UDP, unix.UDP_GRO) }); e != nil || err != nil {
		t.Fatal(e, err)
	}
	return on != 0
}

// takeAll takes n packets one look at a time, and looks once more when nothing is there.
func takeAll(t *testing.T, u *UDP, n, each int) (psns []int) {
	t.Helper()
	batch := make([]Datagrams, each)
	for deadline := time.Now().Add(10 * time.Second); len(psns) < n; {
		m, err := u.TryRecv(batch)
		if err != nil {
			t.Fatal(err)
		}
		for i := range batch[:m] {
			for k := range batch[i].Len() {
				psns = append(psns, int(wire.BTH(batch[i].Segment(k)).PSN()))
			}
		}
		if m == 0 && time.Now().After(deadline) {
			t.Fatalf("%d of %d packets came", len(psns), n)
		}
	}
	if m, err := u.TryRecv(batch); m != 0 || err != nil {
		t.Fatalf("%d more, %v", m, err)
	}
	return psns
}

func inOrder(t *testing.T, psns []int, from int) {
	t.Helper()
	for i, psn := range psns {
		if psn != from+i {
			t.Fatalf("packet %d came as number %d", psn, i)
		}
	}
}

// The kernel stops to merge while small packets come one by one, and begins again with the first long one, or
// with several at once. Each packet comes as it was sent, whatever was on then.
func TestMergingFollowsTheTraffic(t *testing.T) {
	for _, again := range []struct {
		name string
		n    int
		size int
		each int // packets of a look, 0 for who sleeps until they come
	}{
		{"a long message", 40, 1024, 1},
		{"a long message for who sleeps", 40, 1024, 0},
		{"one packet of a path MTU", 1, 256, 1},
		{"many at once", manyAtOnce, 40, 8},
	} {
		t.Run(again.name, func(t *testing.T) {
			a, b := listen(t, UDPConfig{}), listen(t, UDPConfig{})
			if !merges(t, b) {
				t.Skip("the kernel does not merge (UDP_GRO)")
			}
			for i := range fewForOff {
				if !merges(t, b) {
					t.Fatalf("off after %d packets", i)
				}
				sendAll(t, a, stretch(b.LocalAddr(), i, 1, 40))
				inOrder(t, takeAll(t, b, 1, 1), i)
			}
			if merges(t, b) {
				t.Fatal("still on after lone packets")
			}
			// What comes merged now the kernel takes apart.
			sendAll(t, a, stretch(b.LocalAddr(), 0, again.n, again.size))
			if again.each > 0 {
				inOrder(t, takeAll(t, b, again.n, again.each), 0)
			} else {
				var psns []int
				receive(t, b, again.n, func(_ *Datagrams, pkt []byte) { psns = append(psns, int(wire.BTH(pkt).PSN())) })
				inOrder(t, psns, 0)
			}
			if !merges(t, b) {
				t.Fatal("still off")
			}
			sendAll(t, a, stretch(b.LocalAddr(), 0, 50, 1024))
			inOrder(t, takeAll(t, b, 50, 1), 0)
		})
	}
}

// Merging stays on where something merged is waiting: without it nobody would tell where its pieces end.
func TestMergingStaysOnWhileSomethingWaits(t *testing.T) {
	a, b := listen(t, UDPConfig{}), listen(t, UDPConfig{})
	if !merges(t, b) {
		t.Skip("the kernel does not merge (UDP_GRO)")
	}
	sendAll(t, a, stretch(b.LocalAddr(), 0, 50, 1024))
	r := b.recv.(*fastReceiver)
	r.stopMerging()
	if !merges(t, b) || !r.merging.on {
		t.Fatal("off")
	}
	inOrder(t, takeAll(t, b, 50, 1), 0)
}

// The type of service comes with control messages, which the shorter call leaves out.
func TestClassIsToldWithoutMerging(t *testing.T) {
	a, b := listen(t, UDPConfig{}), listen(t, UDPConfig{})
	for i := range fewForOff {
		sendAll(t, a, stretch(b.LocalAddr(), i, 1, 40))
		inOrder(t, takeAll(t, b, 1, 1), i)
	}
	if err := b.ShowClass(); err != nil {
		t.Fatal(err)
	}
	d := stretch(b.LocalAddr(), 1, 1, 40)
	d.TOS = 0x28
	sendAll(t, a, d)
	batch := make([]Datagrams, 1)
	for deadline := time.Now().Add(10 * time.Second); ; {
		n, err := b.TryRecv(batch)
		if err != nil || time.Now().After(deadline) {
			t.Fatal("nothing came", err)
		}
		if n == 1 {
			break
		}
	}
	if batch[0].TOS != 0x28 {
		t.Errorf("type of service %#x", batch[0].TOS)
	}
}
