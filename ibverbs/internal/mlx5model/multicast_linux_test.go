package mlx5model

import (
	"errors"
	"maps"
	"runtime"
	"syscall"
	"testing"
	"time"

	"github.com/purerdma/purerdma/ibverbs/driver"
	"github.com/purerdma/purerdma/ibverbs/internal/uapi"
)

// Groups of the tests, and the LID of theirs.
var (
	linkGroup = driver.GID{0xff, 0x12, 0x40, 0x1b, 12: 0x81, 15: 7}
	ipv4Group = driver.GID{10: 0xff, 11: 0xff, 12: 239, 13: 200, 14: 1, 15: 2}
)

const groupLID = firstMulticastLID + 3

// TestGroupChecks is what the kernel says to a queue pair that would be in a group.
func TestGroupChecks(t *testing.T) {
	for ethernet, lids := range map[bool]map[uint16]error{
		false: {0: syscall.EINVAL, lid: syscall.EINVAL, firstMulticastLID: nil, permissiveLID - 1: nil, permissiveLID: syscall.EINVAL},
		true:  {0: nil, lid: nil, permissiveLID: nil},
	} {
		r := opened(t, Config{Ethernet: ethernet})
		page := r.allocUAR()
		pd, _ := r.allocPD()
		cq, err := r.makeCQ(page, 3, 0)
		r.must(err)
		ud, _ := r.makeQP(pd, page, 4, cq, driver.UD, input(uapi.AttrCreateQPFlags, u32(blockLoopback)))
		rc, _ := r.makeQP(pd, page, 4, cq, driver.RC)
		does := func(cmd uint32, q uint64, gid driver.GID, lid uint16, want error) {
			t.Helper()
			req := uapi.AttachMcast{GID: gid, QPHandle: uint32(q), MLID: lid}
			if err := r.write(cmd, bytesOf(&req), nil); !errors.Is(err, want) {
				t.Errorf("Ethernet %v: command %d, queue pair %d, %v, LID %#x: %v, want %v", ethernet, cmd, q, gid.Addr(), lid, err, want)
			}
		}
		for lid, want := range lids {
			does(uapi.CmdAttachMcast, ud, linkGroup, lid, want)
			does(uapi.CmdDetachMcast, ud, linkGroup, lid, want)
		}
		does(uapi.CmdAttachMcast, ud, driver.GID{0xfe, 0x80}, groupLID, syscall.EINVAL)
		does(uapi.CmdAttachMcast, rc, linkGroup, groupLID, syscall.EINVAL)
		does(uapi.CmdAttachMcast, 99, linkGroup, groupLID, syscall.EINVAL)
		does(uapi.CmdAttachMcast, ud, ipv4Group, groupLID, nil)
		does(uapi.CmdAttachMcast, ud, ipv4Group, groupLID, nil)
		destroy := func() error {
			return r.ioctl(uapi.ObjectQP, uapi.MethodQPDestroy, handleOf(uapi.AttrDestroyQPHandle, ud), output(uapi.AttrDestroyQPResp, make([]byte, 4)))
		}
		if err := destroy(); !errors.Is(err, syscall.EBUSY) {
			t.Errorf("a queue pair in a group is destroyed: %v", err)
		}
		does(uapi.CmdDetachMcast, ud, ipv4Group, groupLID, nil)
		does(uapi.CmdDetachMcast, ud, ipv4Group, groupLID, syscall.EINVAL)
		r.must(destroy())
	}
}

// TestGroups has our driver send to a group: who is in it receives it, the sender too unless
// it does not want that.
func TestGroups(t *testing.T) {
	for name, c := range map[string]struct {
		ethernet bool
		sgid     int
		gid      driver.GID
	}{"InfiniBand": {false, 0, linkGroup}, "Ethernet": {true, 1, linkGroup}, "Ethernet, IPv4": {true, 2, ipv4Group}} {
		t.Run(name, func(t *testing.T) {
			m := New(Config{Ethernet: c.ethernet, Fault: func(s string) { t.Error("model: " + s) }})
			a := &actor{props: props{typ: driver.UD, ethernet: c.ethernet}, t: t}
			a.begin(NewLocal(m))
			first := a.qp
			second, err := a.pd.CreateQP(driver.QPConfig{Type: driver.UD, SendCQ: a.cq, RecvCQ: a.cq, Cap: a.cap})
			a.must(err)
			a.qp = second
			a.connect()
			a.receive(1, 1, 1, 1)
			a.qp = first
			a.receive(1, 1, 1, 1)
			to, err := a.pd.CreateAH(driver.AHAttr{IsGlobal: true, Port: 1, DLID: groupLID, SGIDIndex: c.sgid, DGID: c.gid})
			a.must(err)
			one, two := first.Num(), second.Num()
			none, both, other := map[uint32]int{}, map[uint32]int{one: 1, two: 1}, map[uint32]int{two: 1}
			send := func(want map[uint32]int) {
				t.Helper()
				if got := a.tell(to); !maps.Equal(got, want) {
					t.Errorf("receives of queue pairs: %v, want %v", got, want)
				}
			}
			send(none)
			a.must(second.Multicast(c.gid, groupLID, true))
			send(other)
			a.must(first.Multicast(c.gid, groupLID, true))
			send(both)
			a.must(first.Multicast(c.gid, groupLID, true))
			send(both)
			m.mu.Lock()
			m.qps[one].alone = true
			m.mu.Unlock()
			send(other)
			a.must(second.Multicast(c.gid, groupLID, false))
			send(none)
			if err := first.Close(); !errors.Is(err, driver.ErrBusy) {
				t.Errorf("a queue pair in a group is closed: %v", err)
			}
			a.must(first.Multicast(c.gid, groupLID, false))
			a.must(to.Close())
			a.must(second.Close())
			second.Purge()
			a.end()
		})
	}
}

// tell sends a datagram to a group, and is which queue pairs have received it. The adapter
// delivers it before it completes the request.
func (a *actor) tell(to driver.AH) map[uint32]int {
	a.t.Helper()
	const text = "to all of them"
	wr := driver.SendWR{ID: 2, Op: driver.OpSend, Flags: driver.Signaled, Inline: []byte(text), UD: driver.Destination{AH: to, QPN: toGroup, QKey: qkey}}
	a.post(wr)
	received := map[uint32]int{}
	for end := time.Now().Add(patience); time.Now().Before(end); runtime.Gosched() {
		var wcs [1]driver.WC
		n, err := a.cq.Poll(wcs[:])
		a.must(err)
		switch wc := &wcs[0]; {
		case n == 0:
		case wc.Status != driver.Success:
			a.t.Fatalf("completion %+v", *wc)
		case wc.ID == wr.ID:
			return received
		case wc.ByteLen != grhSize+uint32(len(text)) || wc.SrcQP != a.qp.Num():
			a.t.Fatalf("completion %+v", *wc)
		default:
			received[wc.QPN]++
		}
	}
	a.t.Fatal("the request has no completion")
	return nil
}

// TestPerftestToGroup has two of perftest's programs that answer each other, each from its own
// group. On InfiniBand they would join it by a subnet manager.
func TestPerftestToGroup(t *testing.T) {
	l := newLab(t, true, "ib_send_lat")
	contains(t, l.pair(t, "ib_send_lat", "-c", "UD", "-g", "-n", "20", "-x", "1", "-s", "64", "-F"), "Multicast Test", "#bytes #iterations")
}
