package mlx5

import (
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"syscall"
	"testing"

	"github.com/purerdma/purerdma/ibverbs/driver"
	"github.com/purerdma/purerdma/ibverbs/internal/uapi"
	"github.com/purerdma/purerdma/internal/mlx5prm"
)

// newSharedRig is a rig whose QP takes its receives from an SRQ.
func newSharedRig(t testing.TB, k *fakeMLX5, c driver.SRQConfig) (*rig, *SRQ) {
	t.Helper()
	var srq *SRQ
	r := newRigWith(t, k, 64, driver.QPConfig{Cap: small}, func(pd driver.PD) driver.SRQ {
		s, err := pd.CreateSRQ(c)
		if err != nil {
			t.Fatal(err)
		}
		srq = s.(*SRQ)
		return s
	})
	return r, srq
}

// shared is the counter in the SRQ's doorbell record.
func (r *rig) shared(s *SRQ) uint32 {
	return binary.BigEndian.Uint32(s.mem.Bytes()[r.k.srq.DBAddr-r.k.srq.BufAddr:])
}

func TestSharedEntries(t *testing.T) {
	k := newFake()
	r, srq := newSharedRig(t, k, driver.SRQConfig{WR: 3, SGE: 2, Limit: 2})
	if srq.cap != (driver.SRQAttr{WR: 3, SGE: 3}) || k.limit != 2 {
		t.Errorf("%+v, limit %d", srq.cap, k.limit)
	}
	if want := (uapi.MLX5CreateSRQ{BufAddr: srq.mem.Addr(), DBAddr: srq.mem.Addr() + 4*64}); k.srq != want || srq.mem.Addr()%4096 != 0 {
		t.Errorf("%+v, want %+v", k.srq, want)
	}
	if k.qp.RQWQECount != 0 || k.qp.RQWQEShift != 0 || k.qp.DBAddr-k.qp.BufAddr != uint64(len(r.qp.sq.requests))*64 {
		t.Errorf("the QP has a receive queue: %+v", k.qp)
	}
	sge := driver.SGE{Addr: 0x1122334455667788, Length: 5, LKey: 6}
	if n, err := srq.PostRecv([]driver.RecvWR{{SGL: []driver.SGE{sge}}, {SGL: []driver.SGE{{}, sge, sge}}, {SGL: []driver.SGE{sge, sge, sge}}}); n != 3 || err != nil {
		t.Fatal(n, err)
	}
	head := func(next string) string { return "0000" + next + "00 0000000000000000000000" }
	const data, end, none = "00000005 00000006 1122334455667788", "00000000 00000100 0000000000000000", "00000000000000000000000000000000"
	same(t, "the queue", srq.q.bytes(0, 1<<20), head("0001")+data+end+none+head("0002")+data+data+end+head("0003")+data+data+data)
	if n := r.shared(srq); n != 3 {
		t.Errorf("the record says %d", n)
	}
	if _, err := srq.PostRecv(make([]driver.RecvWR, 1)); err != driver.ErrQueueFull {
		t.Error(err)
	}
	if _, err := r.qp.PostRecv(make([]driver.RecvWR, 1)); err != errHasSRQ {
		t.Error(err)
	}
}

// adapter walks the chain as the device does.
type adapter struct {
	q    *sharedQueue
	at   uint32
	held []uint32 // taken and not completed, in order
}

func (a *adapter) take() uint32 {
	i := a.at
	a.at = uint32(a.q.next(i).Get())
	a.held = append(a.held, i)
	return i
}

// TestSharedReceivesInAnyOrder takes receives along the chain, completes them in any
// order and posts new ones, until all counters have wrapped.
func TestSharedReceivesInAnyOrder(t *testing.T) {
	for _, seed := range []uint64{1, 2, 3} {
		r, srq := newSharedRig(t, newFake(), driver.SRQConfig{WR: 7, SGE: 1})
		rng := rand.New(rand.NewPCG(seed, 7))
		dev := adapter{q: &srq.q}
		var next, done uint64 // receives posted and completed
		onDevice := 0         // posted and not taken
		ids := map[uint64]bool{}
		for done < 70_000 {
			if rng.IntN(2) == 0 {
				n, err := srq.PostRecv([]driver.RecvWR{{ID: next, SGL: []driver.SGE{{Addr: next, Length: 1, LKey: 2}}}})
				if full := onDevice+len(dev.held) == srq.cap.WR; full != (err == driver.ErrQueueFull) || full != (n == 0) {
					t.Fatalf("seed %d, receive %d: %d, %v with %d posted and %d held", seed, next, n, err, onDevice, len(dev.held))
				}
				if n == 1 {
					ids[next] = true
					next++
					onDevice++
				}
				if c := r.shared(srq); c != uint32(next)&mlx5prm.CounterMask {
					t.Fatalf("the record says %#x after %#x", c, next)
				}
				continue
			}
			if onDevice > 0 && rng.IntN(3) > 0 {
				i := dev.take()
				onDevice--
				if id := srq.q.ids[i]; !ids[id] || srq.q.data(i<<srq.q.shift+16).Addr.Get() != id {
					t.Fatalf("seed %d: the device took receive %d, which is not posted", seed, id)
				}
			}
			if len(dev.held) == 0 {
				continue
			}
			at := rng.IntN(len(dev.held))
			i := dev.held[at]
			dev.held = append(dev.held[:at], dev.held[at+1:]...)
			want := srq.q.ids[i]
			r.complete(mlx5prm.CQERespSend, i, nil)
			if wcs := r.poll(2); len(wcs) != 1 || wcs[0].ID != want {
				t.Fatalf("seed %d: %+v, want receive %d", seed, wcs, want)
			}
			delete(ids, want)
			done++
		}
	}
}

// TestSharedCompletions has the completion of each version of CQEs: the number of the
// SRQ is in the field of the user index where there is none.
func TestSharedCompletions(t *testing.T) {
	for _, version := range []uint8{0, 1} {
		k := newFake()
		k.resp.CQEVersion = version
		r, srq := newSharedRig(t, k, driver.SRQConfig{WR: 3})
		if n, err := srq.PostRecv([]driver.RecvWR{{ID: 5}, {ID: 6}}); n != 2 || err != nil {
			t.Fatal(n, err)
		}
		number := func(e *mlx5prm.CQE) {
			if version == 0 {
				e.SRQNUIdx.Set(0x55)
			}
		}
		r.complete(mlx5prm.CQERespErr, 1, number)
		r.cq.errCQE(r.cq.where(0)).Syndrome = mlx5prm.SyndromeWRFlushErr
		r.complete(mlx5prm.CQERespWrImm, 0, func(e *mlx5prm.CQE) { number(e); e.ImmInvalPKey.Set(9) })
		want := []driver.WC{{ID: 6, QPN: r.qp.num, Op: driver.WCRecv, Status: driver.WRFlushErr},
			{ID: 5, QPN: r.qp.num, Op: driver.WCRecvWriteWithImm, Flags: driver.WCWithImm, Imm: 9}}
		if wcs := r.poll(3); len(wcs) != 2 || wcs[0] != want[0] || wcs[1] != want[1] {
			t.Errorf("version %d: %+v, want %+v", version, wcs, want)
		}
	}
}

// TestSharedReceivesComeBack loses no receive when its QP goes before the completion is
// polled: whether a poll finds it between the destroy and Purge, or Purge does.
func TestSharedReceivesComeBack(t *testing.T) {
	for _, version := range []uint8{0, 1} {
		for _, polled := range []bool{false, true} {
			k := newFake()
			k.resp.CQEVersion = version
			r, srq := newSharedRig(t, k, driver.SRQConfig{WR: 1})
			qp, err := r.pd.CreateQP(driver.QPConfig{Type: driver.RC, SendCQ: r.cq, RecvCQ: r.cq, SRQ: srq, Cap: small})
			if err != nil {
				t.Fatal(err)
			}
			for range 3 {
				if n, err := srq.PostRecv([]driver.RecvWR{{ID: 5}}); n != 1 || err != nil {
					t.Fatal(n, err)
				}
				other := qp.(*QP)
				r.complete(mlx5prm.CQERespSend, srq.q.head^1, func(e *mlx5prm.CQE) {
					e.SOpDropQPN.Set(other.num)
					e.SRQNUIdx.Set(other.key)
				})
				if err := qp.Close(); err != nil {
					t.Fatal(err)
				}
				if polled {
					if wcs := r.poll(1); len(wcs) != 0 {
						t.Errorf("a completion of a QP that is gone: %+v", wcs)
					}
				}
				qp.Purge()
				if qp, err = r.pd.CreateQP(driver.QPConfig{Type: driver.RC, SendCQ: r.cq, RecvCQ: r.cq, SRQ: srq, Cap: small}); err != nil {
					t.Fatal(err)
				}
			}
			if n, err := srq.PostRecv([]driver.RecvWR{{ID: 6}}); n != 1 || err != nil {
				t.Errorf("version %d, polled %v: %d, %v", version, polled, n, err)
			}
			if err := qp.Close(); err != nil {
				t.Error(err)
			}
			qp.Purge()
		}
	}
}

// TestCompletionsOfNothing has a device that completes receives which were not posted:
// nothing is handed out twice, and nothing hangs.
func TestCompletionsOfNothing(t *testing.T) {
	r, srq := newSharedRig(t, newFake(), driver.SRQConfig{WR: 3})
	for _, i := range []uint32{0, 0, 2, 65535} {
		r.complete(mlx5prm.CQERespSend, i, nil)
		r.poll(1)
	}
	if n, err := srq.PostRecv(make([]driver.RecvWR, 4)); n != 3 || err != driver.ErrQueueFull {
		t.Error(n, err)
	}
	own := newRig(t, newFake(), 64, driver.QPConfig{Cap: small})
	for range 3 {
		own.complete(mlx5prm.CQERespSend, 0, nil)
		own.poll(1)
	}
	if n, err := own.qp.PostRecv(make([]driver.RecvWR, 5)); n != 4 || err != driver.ErrQueueFull {
		t.Error(n, err)
	}
}

// TestReceiveThatIsHeldIsNotOverwritten completes all but the first of a queue.
func TestReceiveThatIsHeldIsNotOverwritten(t *testing.T) {
	r := newRig(t, newFake(), 64, driver.QPConfig{Cap: small})
	if n, err := r.qp.PostRecv([]driver.RecvWR{{ID: 0}, {ID: 1}, {ID: 2}, {ID: 3}}); n != 4 || err != nil {
		t.Fatal(n, err)
	}
	for _, i := range []uint32{3, 1, 2} {
		r.complete(mlx5prm.CQERespSend, i, nil)
	}
	if wcs := r.poll(4); len(wcs) != 3 {
		t.Fatalf("%+v", wcs)
	}
	if n, err := r.qp.PostRecv([]driver.RecvWR{{ID: 4}}); n != 0 || err != driver.ErrQueueFull {
		t.Fatal(n, err)
	}
	r.complete(mlx5prm.CQERespSend, 0, nil)
	if wcs := r.poll(4); len(wcs) != 1 || wcs[0].ID != 0 {
		t.Fatalf("%+v", wcs)
	}
	if n, err := r.qp.PostRecv([]driver.RecvWR{{ID: 4}, {ID: 5}, {ID: 6}, {ID: 7}}); n != 4 || err != nil {
		t.Fatal(n, err)
	}
}

func TestSharedRefusals(t *testing.T) {
	r, srq := newSharedRig(t, newFake(), driver.SRQConfig{WR: 3, SGE: 1})
	for name, c := range map[string]driver.SRQConfig{
		"no receives":  {SGE: 1},
		"too many":     {WR: 1<<15 + 1},
		"entries":      {WR: 1, SGE: 32},
		"limit":        {WR: 1, Limit: 2},
		"less than no": {WR: 1, Limit: -1},
	} {
		if _, err := r.pd.CreateSRQ(c); !errors.Is(err, syscall.EINVAL) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := srq.SetLimit(4); !errors.Is(err, syscall.EINVAL) {
		t.Error(err)
	}
	if err := srq.SetLimit(1); err != nil || r.k.limit != 1 {
		t.Error(err, r.k.limit)
	}
	if err := srq.Resize(7); !errors.Is(err, driver.ErrNotSupported) {
		t.Error(err)
	}
	if a, err := srq.Query(); err != nil || a.WR != 3 || a.SGE != 1 {
		t.Error(a, err)
	}
	if n, err := srq.PostRecv([]driver.RecvWR{{}, {SGL: make([]driver.SGE, 2)}}); n != 1 || err != driver.ErrTooManySGE || r.shared(srq) != 1 {
		t.Error(n, err, r.shared(srq))
	}
	type foreign struct{ driver.SRQ }
	if _, err := r.pd.CreateQP(driver.QPConfig{Type: driver.RC, SendCQ: r.cq, RecvCQ: r.cq, SRQ: foreign{}, Cap: small}); err != errOtherSRQ {
		t.Error(err)
	}
}

func TestSharedReceivesAllocateNothing(t *testing.T) {
	r, srq := newSharedRig(t, newFake(), driver.SRQConfig{WR: 3, SGE: 1})
	var wcs [2]driver.WC
	if n := testing.AllocsPerRun(100, func() {
		at := srq.q.head
		wr := [1]driver.RecvWR{{SGL: []driver.SGE{{Addr: 1, Length: 2, LKey: 3}}}}
		n, err := srq.PostRecv(wr[:])
		r.complete(mlx5prm.CQERespSend, at, nil)
		if got, err1 := r.cq.Poll(wcs[:]); got != 1 || n != 1 || errors.Join(err, err1) != nil {
			t.Fatal(got, n, err, err1)
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// TestNumbersOfDestroyedQPs has the kernel give a number again before the first QP of
// that number is forgotten, where completions name QPs by it.
func TestNumbersOfDestroyedQPs(t *testing.T) {
	k := newFake()
	k.resp.CQEVersion = 0
	r := newRig(t, k, 64, driver.QPConfig{Cap: small})
	old, fresh := &QP{}, &QP{}
	r.c.qps.put(77, old)
	r.c.qps.put(77, fresh)
	r.c.qps.drop(77, old)
	if r.c.qps.find(77) != fresh {
		t.Error("the QP that goes took the one that came with it")
	}
	r.c.qps.drop(77, fresh)
	if r.c.qps.find(77) != nil {
		t.Error("it is still there")
	}
	if r.c.qps.find(r.qp.num) != r.qp {
		t.Error("the first QP is not there")
	}
}
