package ibverbs_test

import (
	"context"
	"testing"
	"time"

	"github.com/purerdma/purerdma/ibverbs"
	"github.com/purerdma/purerdma/ibverbs/driver/memdriver"
	"github.com/purerdma/purerdma/mr"
)

// patience is how long a test waits for what must happen.
const patience = 10 * time.Second

func try(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func get[T any](v T, err error) func(testing.TB) T {
	return func(t testing.TB) T {
		t.Helper()
		try(t, err)
		return v
	}
}

// deadline is a context that ends after patience.
func deadline(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	t.Cleanup(cancel)
	return ctx
}

// open opens mem0 of a fabric. At the end of the test it is closed, and nothing
// of it may be left in the device.
func open(t testing.TB, fabric *memdriver.Driver) *ibverbs.Context {
	t.Helper()
	dev := get(ibverbs.Open("mem0", ibverbs.WithDrivers(fabric)))(t)
	t.Cleanup(func() {
		try(t, dev.Close())
		if contexts, objects := fabric.Device("mem0").Leaks(); contexts+objects != 0 {
			t.Errorf("%d contexts and %d objects are left in the device", contexts, objects)
		}
	})
	return dev
}

// ends is a QP connected to another on the same device, each with a CQ of its
// own, and registered memory.
type ends struct {
	fabric *memdriver.Driver
	dev    *ibverbs.Context
	pd     *ibverbs.PD
	cqs    [2]*ibverbs.CQ
	qps    [2]*ibverbs.QP
	buf    *mr.Buffer
	mem    *ibverbs.MR
}

// connect makes two ends. The options are of both CQs.
func connect(t testing.TB, opts ...ibverbs.CQOption) *ends {
	t.Helper()
	fabric := memdriver.New(memdriver.Config{RetryTime: 10 * time.Millisecond})
	e := &ends{fabric: fabric, dev: open(t, fabric)}
	e.pd = get(e.dev.AllocPD())(t)
	e.buf = get(mr.Alloc(64 << 10))(t)
	t.Cleanup(func() { try(t, e.buf.Close()) })
	e.mem = get(e.pd.RegMR(e.buf, ibverbs.LocalWrite|ibverbs.RemoteWrite|ibverbs.RemoteRead|ibverbs.RemoteAtomic))(t)
	for i := range e.qps {
		e.cqs[i] = get(e.dev.CreateCQ(256, opts...))(t)
		e.qps[i] = newQP(t, e.pd, e.cqs[i], e.cqs[i])
	}
	join(t, e.dev, e.qps[0], e.qps[1])
	return e
}

func newQP(t testing.TB, pd *ibverbs.PD, send, recv *ibverbs.CQ) *ibverbs.QP {
	t.Helper()
	return get(pd.CreateQP(ibverbs.QPConfig{SendCQ: send, RecvCQ: recv,
		Cap: ibverbs.QPCap{SendWR: 16, RecvWR: 16, SendSGE: 2, RecvSGE: 2, Inline: 64}}))(t)
}

// join connects two QPs of one device and brings both to RTS.
func join(t testing.TB, dev *ibverbs.Context, a, b *ibverbs.QP) {
	t.Helper()
	for _, q := range []*ibverbs.QP{a, b} {
		toInit(t, q)
	}
	toRTS(t, dev, a, b.Num())
	toRTS(t, dev, b, a.Num())
}

func toInit(t testing.TB, q *ibverbs.QP) {
	t.Helper()
	try(t, q.Modify(&ibverbs.QPAttr{State: ibverbs.StateInit, Port: 1, Access: ibverbs.RemoteWrite | ibverbs.RemoteRead | ibverbs.RemoteAtomic},
		ibverbs.QPStateMask|ibverbs.QPPKeyIndex|ibverbs.QPPort|ibverbs.QPAccessFlags))
}

func toRTS(t testing.TB, dev *ibverbs.Context, q *ibverbs.QP, peer uint32) {
	t.Helper()
	gid := get(dev.GIDs(1))(t)[0]
	try(t, q.Modify(&ibverbs.QPAttr{State: ibverbs.StateRTR, PathMTU: ibverbs.MTU1024, DestQPN: peer, MaxDestRdAtomic: 1, MinRNRTimer: 1,
		AH: ibverbs.AHAttr{DGID: gid.GID, SGIDIndex: gid.Index, Port: 1, IsGlobal: true}},
		ibverbs.QPStateMask|ibverbs.QPAV|ibverbs.QPPathMTU|ibverbs.QPDestQPN|ibverbs.QPRQPSN|ibverbs.QPMaxDestRdAtomic|ibverbs.QPMinRNRTimer))
	try(t, q.Modify(&ibverbs.QPAttr{State: ibverbs.StateRTS, Timeout: 14, RetryCnt: 7, RNRRetry: 7, MaxRdAtomic: 1},
		ibverbs.QPStateMask|ibverbs.QPTimeout|ibverbs.QPRetryCnt|ibverbs.QPRNRRetry|ibverbs.QPSQPSN|ibverbs.QPMaxQPRdAtomic))
}

// write is a signaled RDMA write of the first bytes of the memory to its middle.
func (e *ends) write(id uint64, n int) ibverbs.SendWR {
	return ibverbs.SendWR{ID: id, Op: ibverbs.OpWrite, Flags: ibverbs.Signaled, SGL: []ibverbs.SGE{e.mem.SGE(0, n)}, Remote: e.mem.Remote(32 << 10)}
}

// one polls for a completion.
func one(t testing.TB, cq *ibverbs.CQ) ibverbs.WC {
	t.Helper()
	var wcs [1]ibverbs.WC
	n, err := cq.Wait(deadline(t), wcs[:])
	if n != 1 || err != nil {
		t.Fatalf("%d completions, %v", n, err)
	}
	return wcs[0]
}
