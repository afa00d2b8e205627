package softroce

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/purerdma/purerdma/ibverbs/driver"
	"github.com/purerdma/purerdma/ibverbs/softroce/internal/link"
	"github.com/purerdma/purerdma/ibverbs/softroce/internal/wire"
)

// Runs end where an entry of the list does, and packets that lie in two go alone.
func TestRunsOfLists(t *testing.T) {
	for _, op := range []driver.Opcode{driver.OpWrite, driver.OpSend} {
		for _, split := range []bool{false, true} {
			for _, v6 := range []bool{false, true} {
				t.Run(fmt.Sprint(op, split, v6), func(t *testing.T) {
					inBubble(t, rigConfig{sim: SimConfig{Split: split}, v6: v6}, func(r *rig) {
						r.a.fill(3)
						list := []driver.SGE{r.a.sge(1, 3000), r.a.sge(4000, 256), r.a.sge(5000, 257), r.a.sge(6003, 9001)}
						var want []byte
						for _, p := range [][2]int{{1, 3000}, {4000, 256}, {5000, 257}, {6003, 9001}} {
							want = append(want, r.a.bytes(p[0], p[1])...)
						}
						const at = 70_007
						r.b.recv(driver.RecvWR{ID: 2, SGL: []driver.SGE{r.b.sge(at, 20_000)}})
						r.a.post(driver.SendWR{ID: 1, Op: op, Flags: driver.Signaled, SGL: list, Remote: r.b.remote(at)})
						r.a.one(1, driver.Success)
						if !bytes.Equal(r.b.bytes(at, len(want)), want) {
							t.Error("wrong bytes")
						}
						if r.b.counters().received.Load() != uint64(len(want)/256+1) {
							t.Errorf("%d packets", r.b.counters().received.Load())
						}
					})
				})
			}
		}
	}
}

// A packet in the middle of a run that was damaged counts as lost: all before it
// was taken, it and what follows come again, and what it left is written over.
func TestRunWithDamagedPacket(t *testing.T) {
	for _, damaged := range []int{wire.BTHSize, 100, wire.BTHSize + 255} {
		for _, v6 := range []bool{false, true} {
			inBubble(t, rigConfig{v6: v6}, func(r *rig) {
				r.a.fill(4)
				n := 0
				r.sim.Hook(func(p *link.SimPacket) link.Fate {
					if wire.Opcode(p.Data[0]) == wire.RCWriteMiddle {
						if n++; n == 7 {
							p.Data[damaged] ^= 0x41
						}
					}
					return link.Pass
				})
				const size = 40 * 256
				r.a.post(r.a.write(1, 0, size))
				r.a.one(1, driver.Success)
				if !bytes.Equal(r.b.bytes(0, size), r.a.bytes(0, size)) {
					t.Error("wrong bytes")
				}
				if bad := r.b.counters().badICRC.Load(); bad != 1 {
					t.Errorf("%d packets with a wrong ICRC", bad)
				}
			})
		}
	}
}

// A registration that is closed while a long write comes in ends the connection, as
// for a packet that comes alone.
func TestRunIntoClosedRegistration(t *testing.T) {
	inBubble(t, rigConfig{}, func(r *rig) {
		n := 0
		closed := make(chan struct{})
		r.sim.Hook(func(p *link.SimPacket) link.Fate {
			if wire.Opcode(p.Data[0]) == wire.RCWriteMiddle {
				if n++; n == 20 {
					go func() { defer close(closed); r.must(r.b.mr.Close()) }()
				}
			}
			return link.Pass
		})
		r.a.post(r.a.write(1, 0, 200*256))
		if wc := r.a.take(1)[0]; wc.Status != driver.Success && wc.Status != driver.RemAccessErr {
			t.Errorf("ended in %v", wc.Status)
		}
		<-closed
		var err error
		r.b.mr, err = r.b.pd.RegMR(r.b.mem, r.b.mem.Addr(), everything) // for the rig to close
		r.must(err)
	})
}
