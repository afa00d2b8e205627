package softroce

import (
	"bytes"
	"encoding/binary"
	"errors"
	"net/netip"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/purerdma/purerdma/ibverbs/driver"
	"github.com/purerdma/purerdma/ibverbs/softroce/internal/wire"
)

// R55: in front of a datagram is the header it came with.
func TestR55GlobalRouteHeader(t *testing.T) {
	for _, v6 := range []bool{false, true} {
		inBubble(t, udRig(rigConfig{v6: v6, tos: 0x6a}), func(r *rig) {
			r.a.fill(6)
			h := r.a.handle()
			const n = 101
			r.b.recv(driver.RecvWR{ID: 1, SGL: []driver.SGE{r.b.sge(0, 2048)}})
			w := r.a.datagram(h, 2, 0, n)
			w.Op, w.Imm = driver.OpSendWithImm, 0xabcd0123
			r.a.post(w)
			r.a.one(2, driver.Success)
			wc := r.b.one(1, driver.Success)
			if want := (driver.WC{ID: 1, Op: driver.WCRecv, Flags: driver.WCGRH | driver.WCWithImm, ByteLen: grhSize + n, Imm: 0xabcd0123,
				QPN: r.b.q.num, SrcQP: r.a.q.num}); wc != want {
				t.Errorf("completion %+v, want %+v", wc, want)
			}
			if !bytes.Equal(r.b.bytes(grhSize, n), r.a.bytes(0, n)) {
				t.Error("data differ")
			}
			const udp = 8 + 12 + 8 + 4 + 104 + 4
			got, want := r.b.bytes(0, grhSize), make([]byte, grhSize)
			src, dst := r.a.addr.AsSlice(), r.b.addr.AsSlice()
			if v6 {
				copy(want, []byte{0x66, 0xa0, 0, 0, 0, udp, 17, 64})
				copy(want[8:], src)
				copy(want[24:], dst)
			} else {
				ip := want[20:]
				copy(ip, []byte{0x45, 0x6a, 0, 20 + udp, 0, 0, 0x40, 0, 64, 17})
				copy(ip[12:], src)
				copy(ip[16:], dst)
				sum := 0
				for i := 0; i < 20; i += 2 {
					sum += int(binary.BigEndian.Uint16(ip[i:]))
				}
				binary.BigEndian.PutUint16(ip[10:], ^uint16(sum%0xffff))
			}
			if !bytes.Equal(got, want) {
				t.Errorf("header % x\nwant   % x", got, want)
			}
		})
	}
}

// R55: the Identification in the IPv4 header is that of the wire also where the link
// does not show it.
func TestR55IdentificationOfRuns(t *testing.T) {
	inBubble(t, udRig(rigConfig{}), func(r *rig) {
		h := r.a.handle()
		var wrs []driver.SendWR
		for id := range 3 {
			r.b.recv(driver.RecvWR{ID: uint64(id), SGL: []driver.SGE{r.b.sge(id*64, 48)}})
			wrs = append(wrs, r.a.datagram(h, uint64(id), 0, 8))
		}
		r.a.post(wrs...)
		for id := range 3 {
			r.b.one(uint64(id), driver.Success)
			if got := binary.BigEndian.Uint16(r.b.bytes(id*64+24, 2)); got != uint16(id) {
				t.Errorf("datagram %d has Identification %d", id, got)
			}
		}
	})
}

// R55: Q_Keys.
func TestR55QKeys(t *testing.T) {
	inBubble(t, udRig(rigConfig{}), func(r *rig) {
		h := r.a.handle()
		r.b.recv(driver.RecvWR{ID: 1, SGL: []driver.SGE{r.b.sge(0, 48)}})
		w := r.a.datagram(h, 2, 0, 8)
		w.UD.QKey++
		r.a.post(w)
		r.a.one(2, driver.Success)
		r.b.none(time.Second)
		if n := r.b.counter("rcvd_qkey_err"); n != 1 {
			t.Errorf("rcvd_qkey_err is %d", n)
		}
		w = r.a.datagram(h, 3, 0, 8)
		w.UD.QKey = 1 << 31 // its own
		r.a.post(w)
		r.b.one(1, driver.Success)
		r.silent()
	})
}

// R55: what has no place is dropped and counted, and the receive stays.
func TestR55NoPlace(t *testing.T) {
	inBubble(t, udRig(rigConfig{}), func(r *rig) {
		r.a.fill(7)
		h := r.a.handle()
		before := bytes.Clone(r.b.mem.Bytes())
		r.a.post(r.a.datagram(h, 1, 0, 8)) // no receive
		r.b.none(time.Second)
		r.b.recv(driver.RecvWR{ID: 1, SGL: []driver.SGE{r.b.sge(0, 47)}})
		r.a.post(r.a.datagram(h, 2, 0, 8)) // too short a one
		r.b.none(time.Second)
		if n := r.b.counter("dropped_messages"); n != 2 || !bytes.Equal(before, r.b.mem.Bytes()) || r.b.state() != driver.StateRTS {
			t.Errorf("dropped_messages is %d, state %v", n, r.b.state())
		}
		r.a.post(r.a.datagram(h, 3, 0, 7))
		if wc := r.b.one(1, driver.Success); wc.ByteLen != 47 || !bytes.Equal(r.b.bytes(40, 7), r.a.bytes(0, 7)) {
			t.Errorf("%+v", wc)
		}
		r.a.take(3)
		r.silent()
	})
}

// R42 of UD: strangers are dropped, but for the address, which datagrams may come
// from anywhere.
func TestR55AnyoneMaySend(t *testing.T) {
	inBubble(t, udRig(rigConfig{}), func(r *rig) {
		stranger := &end{r: r, name: 'c', addr: netip.MustParseAddr("10.9.0.77"), q: r.a.q}
		r.b.recv(driver.RecvWR{ID: 1, SGL: []driver.SGE{r.b.sge(0, 48)}})
		r.inject(stranger, r.b, wire.UCSendOnly, 0, 0, make([]byte, 8), nil)
		r.inject(stranger, r.b, wire.RCSendOnly, 0, 0, make([]byte, 8), nil)
		if n := r.b.counter("rcvd_malformed_err"); n != 2 {
			t.Errorf("%d packets of other transports", n)
		}
		r.inject(stranger, r.b, wire.UDSendOnly, 0, 99, make([]byte, 8), func(p wire.Packet) { p.DETH().Put(rigQKey, 0x77) })
		if wc := r.b.one(1, driver.Success); wc.SrcQP != 0x77 || !bytes.Equal(r.b.bytes(32, 4), []byte{10, 9, 0, 77}) {
			t.Errorf("%+v from % x", wc, r.b.bytes(20, 20))
		}
	})
}

// An address handle that is closed while requests name it ends them, not the process.
func TestHandleClosedWhileQueued(t *testing.T) {
	inBubble(t, udRig(rigConfig{}), func(r *rig) {
		h, err := r.a.pd.CreateAH(driver.AHAttr{DGID: gidOf(r.b.addr), Port: 1, IsGlobal: true})
		r.must(err)
		r.must(r.a.q.Modify(&driver.QPAttr{State: driver.StateSQD}, driver.QPStateMask))
		r.a.post(r.a.datagram(h, 1, 0, 8), r.a.datagram(h, 2, 0, 8))
		r.must(h.Close())
		if n, err := r.a.q.PostSend([]driver.SendWR{r.a.datagram(h, 3, 0, 8)}); n != 0 || !errors.Is(err, syscall.EINVAL) {
			t.Errorf("a closed handle: %d, %v", n, err)
		}
		r.must(r.a.q.Modify(&driver.QPAttr{State: driver.StateRTS}, driver.QPStateMask))
		r.a.one(1, driver.LocQPOpErr)
		r.a.one(2, driver.WRFlushErr)
		if s := r.a.state(); s != driver.StateSQE {
			t.Errorf("state %v", s)
		}
	})
}

func TestHandlesThatAreRefused(t *testing.T) {
	inBubble(t, udRig(rigConfig{}), func(r *rig) {
		other, err := r.a.ctx.AllocPD()
		r.must(err)
		foreign, err := other.CreateAH(driver.AHAttr{DGID: gidOf(r.b.addr), Port: 1, IsGlobal: true})
		r.must(err)
		for name, h := range map[string]driver.AH{"none": nil, "nil": (*ah)(nil), "another PD's": foreign, "another driver's": otherAH{}} {
			if n, err := r.a.q.PostSend([]driver.SendWR{r.a.datagram(h, 3, 0, 8)}); n != 0 || !errors.Is(err, syscall.EINVAL) || !strings.Contains(err.Error(), "UD.AH") {
				t.Errorf("%s: %d, %v", name, n, err)
			}
		}
		if err := other.Close(); !errors.Is(err, driver.ErrBusy) {
			t.Errorf("PD closed under an address handle: %v", err)
		}
		r.must(foreign.Close())
		r.must(other.Close())
		w := r.a.datagram(r.a.handle(), 3, 0, 8)
		w.UD.QPN = 1 << 24
		if _, err := r.a.q.PostSend([]driver.SendWR{w}); !errors.Is(err, syscall.EINVAL) {
			t.Errorf("QPN of 25 bits: %v", err)
		}
		good := driver.AHAttr{DGID: gidOf(r.b.addr), Port: 1, IsGlobal: true}
		for field, change := range map[string]func(a *driver.AHAttr){
			"Port": func(a *driver.AHAttr) { a.Port = 2 }, "IsGlobal": func(a *driver.AHAttr) { a.IsGlobal = false },
			"SGIDIndex": func(a *driver.AHAttr) { a.SGIDIndex = 1 }, "SL": func(a *driver.AHAttr) { a.SL = 16 },
			"FlowLabel": func(a *driver.AHAttr) { a.FlowLabel = 1 << 20 }, "DGID": func(a *driver.AHAttr) { a.DGID = driver.GID{} },
			"DGID is fd00::1": func(a *driver.AHAttr) { a.DGID = gidOf(netip.MustParseAddr("fd00::1")) },
			"DGID is ::ffff:224.0.0.1": func(a *driver.AHAttr) {
				a.DGID = gidOf(netip.MustParseAddr("224.0.0.1"))
			},
		} {
			a := good
			change(&a)
			if _, err := r.a.pd.CreateAH(a); !errors.Is(err, syscall.EINVAL) || !strings.Contains(err.Error(), "AHAttr."+field) {
				t.Errorf("%s: %v", field, err)
			}
		}
	})
}

type otherAH struct{}

func (otherAH) Close() error { return nil }
