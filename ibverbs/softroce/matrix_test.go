package softroce

import (
	"bytes"
	"encoding/binary"
	"flag"
	"fmt"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/purerdma/purerdma/ibverbs/driver"
)

var (
	matrixSeeds = flag.Int("seeds", 4, "seeds for each combination of faults in TestFaults; 1000 is all")
	matrixFirst = flag.Uint64("firstseed", 0, "the first of the seeds in TestFaults")
)

// TestFaults runs seeded traffic of all operations over networks that lose, double,
// reorder and damage packets: no wrong byte, one completion a request, no hang. Up
// to 5 % loss all succeed. At 30 % a connection may give up, which is RETRY_EXC and
// then flushed requests; with the same seeds and 64 retries all is delivered.
//
// All of it, 40,000 runs, is
//
//	go test -run 'TestFaults$' -seeds 1000 -timeout 0 ./ibverbs/softroce
//
// which may be split among machines by -firstseed. A failure names its seed, which
// -firstseed N -seeds 1 runs again.
func TestFaults(t *testing.T) {
	for _, loss := range []float64{0, 0.01, 0.05, 0.3} {
		for _, dup := range []float64{0, 0.1} {
			for _, reorder := range []float64{0, 0.05} {
				for _, corrupt := range []float64{0, 0.02} {
					f := Faults{Loss: loss, Duplicate: dup, Reorder: reorder, Corrupt: corrupt, Delay: 10 * time.Microsecond}
					t.Run(fmt.Sprintf("loss %v dup %v reorder %v corrupt %v", loss, dup, reorder, corrupt), func(t *testing.T) {
						t.Parallel()
						for i := range uint64(*matrixSeeds) {
							seed := *matrixFirst + i
							faultyTraffic(t, seed, f, 0)
							if loss == 0.3 {
								faultyTraffic(t, seed, f, 64)
							}
							if t.Failed() {
								t.Fatalf("seed %d", seed)
							}
						}
					})
				}
			}
		}
	}
}

// traffic is a shuffled list of operations, each in its own slot of the memory of
// both ends.
type traffic struct {
	slot  int
	size  []int
	op    []driver.Opcode
	start uint64 // what the counter of the atomics is at first
}

const trafficOps = 48

func newTraffic(g *rand.Rand) *traffic {
	t := &traffic{slot: 8192, start: g.Uint64()}
	ops := []driver.Opcode{driver.OpWrite, driver.OpWriteWithImm, driver.OpSend, driver.OpSendWithImm, driver.OpRead, driver.OpFetchAdd, driver.OpCmpSwap}
	for range trafficOps {
		op := ops[g.IntN(len(ops))]
		n := []int{0, 1, 255, 256, 257, 4096, g.IntN(8192)}[g.IntN(7)]
		if isAtomic(op) {
			n = 8
		}
		t.op, t.size = append(t.op, op), append(t.size, n)
	}
	return t
}

func faultyTraffic(t *testing.T, seed uint64, f Faults, retryLimit uint8) {
	synctest.Test(t, func(t *testing.T) {
		g := rand.New(rand.NewPCG(seed, 99))
		tr := newTraffic(g)
		r := newRig(t, rigConfig{
			sim: SimConfig{Seed: seed, Faults: f, Split: g.IntN(2) == 0}, memory: (trafficOps + 1) * tr.slot, psn: g.Uint32() & 0xffffff,
			timeout: 8, depth: 64, retryLimit: retryLimit, v6: true, // where the check of packets is exact
		})
		defer r.close()
		r.a.fill(seed)
		fillRandom(rand.New(rand.NewPCG(seed, 2)), r.b.mem.Bytes())
		tr.run(t, r, f.Loss > 0.05 && retryLimit == 0)
		if t.Failed() {
			t.Logf("seed %d, %+v, retry limit %d, counters %+v", seed, f, retryLimit, r.a.counters())
		}
	})
}

// run posts all and looks at what came of it.
func (tr *traffic) run(t *testing.T, r *rig, mayFail bool) {
	beforeA, beforeB := bytes.Clone(r.a.mem.Bytes()), bytes.Clone(r.b.mem.Bytes())
	counter := trafficOps * tr.slot
	binary.NativeEndian.PutUint64(r.b.bytes(counter, 8), tr.start)
	receives := 0
	for i := range tr.op {
		if wr := tr.request(r, i); wr.Op == driver.OpSend || wr.Op == driver.OpSendWithImm || wr.Op == driver.OpWriteWithImm {
			r.b.recv(driver.RecvWR{ID: uint64(i), SGL: []driver.SGE{r.b.sge(i*tr.slot, tr.slot)}})
			receives++
		}
	}
	for i := range tr.op {
		r.a.post(tr.request(r, i))
	}
	done := 0 // requests that succeeded
	var why driver.Status
	for i, wc := range r.a.take(len(tr.op)) {
		switch {
		case wc.ID != uint64(i):
			t.Fatalf("completion %d is of request %d", i, wc.ID)
		case wc.Status == driver.Success && why == driver.Success:
			done++
		case !mayFail, why == driver.Success && wc.Status != driver.RetryExcErr, why != driver.Success && wc.Status != driver.WRFlushErr:
			t.Fatalf("request %d ended in %v, after %v", i, wc.Status, why)
		default:
			why = wc.Status
		}
	}
	value := tr.start
	for i := range done {
		tr.check(t, r, i, &value, beforeA, beforeB)
	}
	if why != driver.Success {
		// Nothing completes twice, and what a was told of has arrived.
		r.a.none(time.Second)
		arrived := r.b.poll()
		for i, wc := range arrived {
			if wc.Status != driver.Success || wc.ID != tr.receive(i) {
				t.Fatalf("receive %d is %+v", i, wc)
			}
		}
		if tr.receive(len(arrived)) < uint64(done) {
			t.Fatalf("%d requests succeeded, %d receives", done, len(arrived))
		}
	} else {
		if got := r.b.take(receives); got[receives-1].Status != driver.Success {
			t.Fatalf("receives %+v", got)
		}
		if got := binary.NativeEndian.Uint64(r.b.bytes(counter, 8)); got != value {
			t.Fatalf("the counter is %#x, want %#x", got, value)
		}
		r.a.none(time.Second)
		r.b.none(0)
	}
}

// receive is the number of the request that takes receive i, that of no request if
// none does.
func (tr *traffic) receive(i int) uint64 {
	for k, op := range tr.op {
		if op == driver.OpSend || op == driver.OpSendWithImm || op == driver.OpWriteWithImm {
			if i == 0 {
				return uint64(k)
			}
			i--
		}
	}
	return uint64(len(tr.op))
}

func (tr *traffic) request(r *rig, i int) driver.SendWR {
	w := driver.SendWR{ID: uint64(i), Op: tr.op[i], Flags: driver.Signaled, Imm: uint32(i), SGL: []driver.SGE{r.a.sge(i*tr.slot, tr.size[i])}, Remote: r.b.remote(i * tr.slot)}
	switch w.Op {
	case driver.OpFetchAdd:
		w.Remote, w.CompareAdd = r.b.remote(trafficOps*tr.slot), uint64(i)+1
	case driver.OpCmpSwap:
		w.Remote, w.CompareAdd, w.Swap = r.b.remote(trafficOps*tr.slot), tr.start, uint64(i)
	}
	return w
}

// check looks at request i, which succeeded. value is the counter before it.
func (tr *traffic) check(t *testing.T, r *rig, i int, value *uint64, beforeA, beforeB []byte) {
	off, n := i*tr.slot, tr.size[i]
	a, b := r.a.bytes(off, tr.slot), r.b.bytes(off, tr.slot)
	oldA, oldB := beforeA[off:off+tr.slot], beforeB[off:off+tr.slot]
	switch tr.op[i] {
	case driver.OpRead:
		if !bytes.Equal(a[:n], oldB[:n]) || !bytes.Equal(a[n:], oldA[n:]) || !bytes.Equal(b, oldB) {
			t.Fatalf("read %d of %d bytes is wrong", i, n)
		}
	case driver.OpFetchAdd, driver.OpCmpSwap:
		if got := binary.NativeEndian.Uint64(a); got != *value {
			t.Fatalf("atomic %d found %#x, want %#x", i, got, *value)
		}
		if tr.op[i] == driver.OpFetchAdd {
			*value += uint64(i) + 1
		} else if *value == tr.start {
			*value = uint64(i)
		}
	default:
		if !bytes.Equal(a, oldA) || !bytes.Equal(b[:n], oldA[:n]) || !bytes.Equal(b[n:], oldB[n:]) {
			t.Fatalf("%v %d of %d bytes is wrong", tr.op[i], i, n)
		}
	}
}
