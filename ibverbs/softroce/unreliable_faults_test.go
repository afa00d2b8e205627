package softroce

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

	"github.com/purerdma/purerdma/ibverbs/driver"
	"github.com/purerdma/purerdma/ibverbs/softroce/internal/link"
	"github.com/purerdma/purerdma/ibverbs/softroce/internal/wire"
	"github.com/purerdma/purerdma/internal/racetest"
)

// R54 and R55 under loss, doubling, reordering and damage by a seed: what is
// delivered is a message that was sent, whole, on UC each at most once and in order;
// requests complete; when the network is well again all arrives.
func TestUnreliableFaults(t *testing.T) {
	for _, typ := range []driver.QPType{driver.UC, driver.UD} {
		for _, f := range []Faults{
			{Loss: 0.01}, {Loss: 0.1}, {Loss: 0.3}, {Duplicate: 0.2}, {Reorder: 0.1}, {Corrupt: 0.1},
			{Loss: 0.05, Duplicate: 0.1, Reorder: 0.05, Corrupt: 0.02, Delay: 10 * time.Microsecond},
		} {
			t.Run(fmt.Sprintf("%v %+v", typ, f), func(t *testing.T) {
				t.Parallel()
				lost, damaged := 0, uint64(0)
				for seed := range uint64(4 * *matrixSeeds) {
					l, d := unreliableTraffic(t, typ, seed, f)
					if t.Failed() {
						t.Fatalf("seed %d", seed)
					}
					lost, damaged = lost+l, damaged+d
				}
				// One seed may lose or damage nothing.
				if f.Loss >= 0.1 && lost == 0 || f.Corrupt >= 0.1 && damaged == 0 {
					t.Errorf("%d messages lost and %d packets damaged with all seeds", lost, damaged)
				}
			})
		}
	}
}

const unreliableMessages = 64

// unreliableTraffic sends messages that begin with their number, all from one
// random text. It tells how many messages were lost, and how many packets the
// receiver found damaged.
func unreliableTraffic(t *testing.T, typ driver.QPType, seed uint64, f Faults) (lost int, damaged uint64) {
	synctest.Test(t, func(t *testing.T) {
		g := rand.New(rand.NewPCG(seed, 55))
		const slot, written = 4096, 2 * unreliableMessages * 4096 // where writes go, behind the receives
		r := newRig(t, rigConfig{
			typ: typ, sim: SimConfig{Seed: seed, Faults: f, Split: g.IntN(2) == 0}, memory: 4 * unreliableMessages * slot, psn: g.Uint32() & 0xffffff,
			depth: 2 * unreliableMessages, v6: true, // where the check of packets is exact
		})
		defer r.close()
		r.a.fill(seed)
		h := r.a.handle()
		head := 0
		if typ == driver.UD {
			head = grhSize
		}
		size, ops := map[int]int{}, []driver.Opcode{driver.OpSend, driver.OpSendWithImm, driver.OpWriteWithImm}
		for i := range 2 * unreliableMessages {
			r.b.recv(driver.RecvWR{ID: uint64(i), SGL: []driver.SGE{r.b.sge(i*slot, slot)}})
		}
		send := func(i int) {
			size[i] = []int{4, 255, 256, 257, 1000, 4 + g.IntN(slot-head-4)}[g.IntN(6)]
			w := r.a.datagram(h, uint64(i), i*slot, size[i])
			w.Op, w.Imm, w.Remote = ops[g.IntN(len(ops)-head/grhSize)], uint32(i), r.b.remote(written+i*slot)
			binary.LittleEndian.PutUint32(r.a.bytes(i*slot, 4), uint32(i))
			r.a.post(w)
			r.a.one(uint64(i), driver.Success)
		}
		delivered, last := 0, -1
		take := func(healthy bool, from int) {
			time.Sleep(time.Second)
			for _, wc := range r.b.poll() {
				at := int(wc.ID) * slot
				if wc.Status != driver.Success {
					t.Fatalf("completion %+v", wc)
				}
				if wc.Op == driver.WCRecvWriteWithImm {
					at = written + int(wc.Imm)*slot
				}
				n := int(wc.ByteLen) - head
				i := int(binary.LittleEndian.Uint32(r.b.bytes(at+head, 4)))
				want, sent := size[i]
				switch {
				case !sent || n != want || !bytes.Equal(r.b.bytes(at+head, n), r.a.bytes(i*slot, n)) || wc.Flags&driver.WCWithImm != 0 && wc.Imm != uint32(i):
					t.Fatalf("delivery %+v holds %d bytes that are not message %d of %d", wc, n, i, want)
				case typ == driver.UC && i <= last:
					t.Fatalf("message %d was delivered after %d", i, last)
				case healthy && i != from+delivered:
					t.Fatalf("message %d was delivered where %d was due", i, from+delivered)
				}
				last = i
				delivered++
			}
		}
		for i := range unreliableMessages {
			send(i)
		}
		take(false, 0)
		if lossy := f.Loss > 0 || f.Corrupt > 0; !lossy && f.Reorder == 0 && delivered < unreliableMessages {
			t.Errorf("%d of %d were delivered", delivered, unreliableMessages)
		}
		lost = unreliableMessages - delivered
		delivered = 0
		r.sim.SetFaults(Faults{})
		for i := range unreliableMessages / 2 {
			send(unreliableMessages + i)
		}
		take(true, unreliableMessages)
		c := r.b.counters()
		switch {
		case delivered != unreliableMessages/2:
			t.Errorf("%d of %d were delivered by a healthy network", delivered, unreliableMessages/2)
		case typ == driver.UC && lost > 0 && c.gaps.Load() == 0:
			t.Errorf("losses were not counted: %+v", c.list(link.Stats{}))
		}
		damaged = c.badICRC.Load() + c.malformed.Load()
		r.silent()
	})
	return lost, damaged
}

// A round of sending, receiving and polling allocates nothing.
func TestUnreliableAllocations(t *testing.T) {
	if racetest.Enabled {
		t.Skip("the race detector allocates")
	}
	for _, typ := range []driver.QPType{driver.UC, driver.UD} {
		inBubble(t, rigConfig{typ: typ, mtu: driver.MTU1024, unseen: true}, func(r *rig) {
			h := r.a.handle()
			sends := []driver.SendWR{r.a.datagram(h, 1, 0, 4000), r.a.datagram(h, 2, 0, 10)}
			sends[1].SGL, sends[1].Inline = nil, make([]byte, 10)
			recvs := []driver.RecvWR{{ID: 3, SGL: []driver.SGE{r.b.sge(0, 4096)}}, {ID: 4, SGL: []driver.SGE{r.b.sge(0, 50), r.b.sge(64, 50)}}}
			var wcs [4]driver.WC
			round := func() {
				if n, err := r.b.q.PostRecv(recvs); n != 2 || err != nil {
					t.Fatal(n, err)
				}
				if n, err := r.a.q.PostSend(sends); n != 2 || err != nil {
					t.Fatal(n, err)
				}
				synctest.Wait()
				for _, e := range []*end{r.a, r.b} {
					if n, err := e.cq.Poll(wcs[:]); n != 2 || err != nil {
						t.Fatalf("%c: %d completions, %v", e.name, n, err)
					}
				}
			}
			round()
			if got := testing.AllocsPerRun(100, round); got != 0 {
				t.Errorf("%v: %v allocations a round", typ, got)
			}
		})
	}
}

// Datagrams of one list go each by its own handle.
func TestHandlesOfOneList(t *testing.T) {
	inBubble(t, udRig(rigConfig{}), func(r *rig) {
		var handles []driver.AH
		for i := range 2 {
			r.cfg.tos = uint8(4 + 4*i)
			handles = append(handles, r.a.handle())
		}
		var wrs []driver.SendWR
		for i := range 8 {
			r.b.recv(driver.RecvWR{ID: uint64(i), SGL: []driver.SGE{r.b.sge(i*64, 48)}})
			wrs = append(wrs, r.a.datagram(handles[i/2%2], uint64(i), 0, 8))
		}
		r.a.post(wrs...)
		for i := range 8 {
			r.b.one(uint64(i), driver.Success)
			if got, want := r.b.bytes(i*64+21, 1)[0], uint8(4+4*(i/2%2)); got != want {
				t.Errorf("datagram %d has type of service %d, want %d", i, got, want)
			}
		}
	})
}

// Packets that a stranger makes up, with a checksum that is right, crash nothing, and
// change no memory but that of the receives.
func FuzzUnreliablePackets(f *testing.F) {
	f.Add([]byte{0x20, 0, 0, 0, 0, 1, 2, 3})
	f.Add([]byte{0x2b, 0, 0, 0, 0, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 0, 0, 0, 8, 1, 2, 3, 4})
	f.Add([]byte{0x64, 0, 0, 0, 0, 0x01, 0x23, 0x45, 0x67, 0, 0, 0, 7, 1, 2, 3})
	f.Fuzz(func(t *testing.T, script []byte) {
		for _, typ := range []driver.QPType{driver.UC, driver.UD} {
			inBubble(t, rigConfig{typ: typ, unseen: true}, func(r *rig) {
				const receives = 4096
				before := bytes.Clone(r.b.mem.Bytes())
				for id := range uint64(8) {
					r.b.recv(driver.RecvWR{ID: id, SGL: []driver.SGE{r.b.sge(int(id)*512, 512)}})
				}
				src := netip.AddrPortFrom(r.a.addr, wire.Port)
				way := wire.NewPath(src, netip.AddrPortFrom(r.b.addr, wire.Port))
				for rest := script; len(rest) >= 5; {
					op, n := wire.Opcode(rest[0]), int(rest[1])<<1
					b := make([]byte, wire.BTHSize, 1024)
					psn := r.b.q.resp.psn.Add(uint32(int8(rest[2])) & wire.PSNMask)
					wire.BTH(b).Put(op, wire.Flags(rest[3]), defaultPKey, r.b.q.num, psn)
					b[1] = rest[3]&0x80 | rest[4]<<4&0x30
					rest = rest[5:]
					b = append(b, rest[:min(n, len(rest))]...)
					rest = rest[min(n, len(rest)):]
					b = append(b, make([]byte, 4+-len(b)&3)...)
					way.Seal(b, 0)
					r.sim.Inject(src, r.b.addr, b)
				}
				r.settle()
				if !bytes.Equal(r.b.bytes(receives, len(before)-receives), before[receives:]) {
					t.Error("memory changed")
				}
				for _, wc := range r.b.poll() {
					if wc.Status != driver.Success || wc.ByteLen > 512 {
						t.Errorf("completion %+v", wc)
					}
				}
				if s := r.b.state(); s != driver.StateRTS {
					t.Errorf("state %v", s)
				}
			})
		}
	})
}
