package mlx5model

import (
	stdcontext "context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/purerdma/purerdma/ibverbs/driver"
	"github.com/purerdma/purerdma/internal/mmio"
	"github.com/purerdma/purerdma/internal/offheap"
)

// watcher is a kernel with the model that sees what the driver does to memory it shares
// with the device. All is done by one goroutine.
type watcher struct {
	*Local
	t      testing.TB
	pages  map[uintptr]traced
	last   string
	loaded int  // load fences
	owed   bool // a fence behind a register
}

// traced is a mapped page of doorbells.
type traced struct {
	c      *context
	offset uint64
}

const (
	fenced  = "a store fence"
	ordered = "an order of stores"
)

// MapRing notes where a page lies.
func (k *watcher) MapRing(fd int, off int64, size int) (offheap.Span, error) {
	mem, err := k.Linux.MapRing(fd, off, size)
	if err == nil {
		k.pages[uintptr(mem.Addr())] = traced{k.open[fd].context, uint64(off)}
	}
	return mem, err
}

func (k *watcher) told(what int, at uintptr, _ uint64) {
	before := k.last
	if what == mmio.Block {
		if k.owed { // the entry goes on in another word
			k.store(at)
			return
		}
		what = mmio.Register
	}
	if k.owed && what != mmio.Stored {
		k.t.Error("no store fence behind a register")
		k.owed = false
	}
	switch what {
	case mmio.Stored:
		k.last = fenced
		if k.owed { // which is the one behind the register, and orders nothing else
			k.last, k.owed = "", false
		}
	case mmio.Ordered:
		k.last = ordered
	case mmio.Loaded:
		k.loaded++
		k.last = "a load fence"
	case mmio.Store:
		k.last = "a store"
		if name, want := k.record(uint64(at)); want != "" && before != want {
			k.t.Errorf("%s is stored behind %q, not behind %s", name, before, want)
		}
	case mmio.Register:
		k.last, k.owed = "", true
		if before != fenced {
			k.t.Errorf("a register is stored to behind %q", before)
		}
		k.store(at)
	}
}

// store tells the model of a store into a page of doorbells.
func (k *watcher) store(at uintptr) {
	page := k.pages[at&^(pageSize-1)]
	if page.c == nil {
		k.t.Fatalf("a store to %#x, which is no page of doorbells", at)
	}
	page.c.store(page.offset + uint64(at&(pageSize-1)))
}

// record is which doorbell record lies at an address, and what must come before a store to
// it.
func (k *watcher) record(at uint64) (name, want string) {
	k.m.mu.Lock()
	defer k.m.mu.Unlock()
	for _, q := range k.m.qps {
		switch at {
		case q.db: // has no register behind it
			return fmt.Sprintf("the record of receives of queue pair %#x", q.num), fenced
		case q.db + 4:
			return fmt.Sprintf("the record of sends of queue pair %#x", q.num), ordered
		}
	}
	for c := range k.m.contexts {
		for _, q := range c.cqs {
			if at == q.db {
				return fmt.Sprintf("the index of CQ %#x", q.num), "a load fence"
			}
		}
	}
	return "", ""
}

// tracedEnd is one end of a connection.
type tracedEnd struct {
	*watcher
	dev     driver.Context
	pd      driver.PD
	cq      driver.CQ
	channel driver.CompChannel
	qp      driver.QP
	mem     offheap.Span
	mr      driver.MR
}

const patient = 2 * time.Second

func (k *watcher) end(t *testing.T) *tracedEnd {
	e := &tracedEnd{watcher: k, dev: openOurs(t, k, Config{}, 64)}
	var err error
	must := func() {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	e.pd, err = e.dev.AllocPD()
	must()
	e.channel, err = e.dev.CreateCompChannel()
	must()
	e.cq, err = e.dev.CreateCQ(driver.CQConfig{Depth: 7, Channel: e.channel, Cookie: 1})
	must()
	e.mem, err = offheap.Map(1<<16, offheap.Options{})
	must()
	e.mr, err = e.pd.RegMR(e.mem, e.mem.Addr(), driver.LocalWrite|driver.RemoteWrite|driver.RemoteRead|driver.RemoteAtomic)
	must()
	e.qp, err = e.pd.CreateQP(driver.QPConfig{Type: driver.RC, SendCQ: e.cq, RecvCQ: e.cq, Cap: driver.QPCap{SendWR: 4, RecvWR: 4, SendSGE: 2, RecvSGE: 2, Inline: 100}})
	must()
	t.Cleanup(func() {
		if err := e.qp.Close(); err != nil {
			t.Error(err)
		}
		e.qp.Purge()
		for _, o := range []interface{ Close() error }{e.cq, e.mr, e.channel, e.pd, e.dev} {
			if err := o.Close(); err != nil {
				t.Error(err)
			}
		}
		_ = e.mem.Release()
	})
	return e
}

func (e *tracedEnd) connect(t *testing.T, peer *tracedEnd) {
	rtr := driver.QPAttr{State: driver.StateRTR, PathMTU: driver.MTU1024, DestQPN: peer.qp.Num(), RQPSN: 7, MaxDestRdAtomic: 4, MinRNRTimer: 12,
		AH: driver.AHAttr{DLID: lid, Port: 1}}
	for _, s := range []struct {
		a    driver.QPAttr
		mask driver.QPMask
	}{
		{driver.QPAttr{State: driver.StateInit, Port: 1, Access: driver.RemoteWrite | driver.RemoteRead | driver.RemoteAtomic}, driver.QPPort | driver.QPPKeyIndex | driver.QPAccessFlags},
		{rtr, driver.QPAV | driver.QPPathMTU | driver.QPDestQPN | driver.QPRQPSN | driver.QPMaxDestRdAtomic | driver.QPMinRNRTimer},
		{driver.QPAttr{State: driver.StateRTS, SQPSN: 7, Timeout: 8, RetryCnt: 3, RNRRetry: 3, MaxRdAtomic: 4},
			driver.QPSQPSN | driver.QPTimeout | driver.QPRetryCnt | driver.QPRNRRetry | driver.QPMaxQPRdAtomic},
	} {
		if err := e.qp.Modify(&s.a, s.mask|driver.QPStateMask); err != nil {
			t.Fatal(err)
		}
	}
}

func (e *tracedEnd) sge(off, n int) []driver.SGE {
	l, _ := e.mr.Keys()
	return []driver.SGE{{Addr: e.mem.Addr() + uint64(off), Length: uint32(n), LKey: l}}
}

func (e *tracedEnd) remote(off int) driver.Remote {
	_, r := e.mr.Keys()
	return driver.Remote{Addr: e.mem.Addr() + uint64(off), RKey: r}
}

func (e *tracedEnd) send(t *testing.T, wrs ...driver.SendWR) {
	t.Helper()
	if n, err := e.qp.PostSend(wrs); n != len(wrs) || err != nil {
		t.Fatalf("%d posted, %v", n, err)
	}
}

func (e *tracedEnd) recv(t *testing.T, wrs ...driver.RecvWR) {
	t.Helper()
	if n, err := e.qp.PostRecv(wrs); n != len(wrs) || err != nil {
		t.Fatalf("%d posted, %v", n, err)
	}
}

// want takes completions of these requests, in this order.
func (e *tracedEnd) want(t *testing.T, status driver.Status, ids ...uint64) {
	t.Helper()
	var wcs [1]driver.WC
	for _, id := range ids {
		for end := time.Now().Add(patient); ; {
			e.loaded = 0
			n, err := e.cq.Poll(wcs[:])
			if err != nil || time.Now().After(end) {
				t.Fatalf("%d completions, %v", n, err)
			}
			if n == 0 {
				continue
			}
			if e.loaded < n+1 {
				t.Fatalf("%d completions are read with %d load fences", n, e.loaded)
			}
			break
		}
		if wcs[0].ID != id || wcs[0].Status != status {
			t.Fatalf("completion of %d: %v, want %d: %v", wcs[0].ID, wcs[0].Status, id, status)
		}
	}
}

// newWatcher makes one with a model of its own.
func newWatcher(t *testing.T, ethernet bool) *watcher {
	m := New(Config{Ethernet: ethernet, Log: func(s string) { t.Log("model: " + s) }, Fault: func(s string) { t.Error("model: " + s) }})
	k := &watcher{Local: NewLocal(m), t: t, pages: map[uintptr]traced{}}
	k.trapped = true
	mmio.Traced = k.told
	return k
}

func TestTraced(t *testing.T) {
	k := newWatcher(t, false)
	a, b := k.end(t), k.end(t)
	a.connect(t, b)
	b.connect(t, a)
	for i := range 40 {
		id := uint64(10 * i)
		text := fmt.Sprintf("%090d", i)
		copy(a.mem.Bytes(), text)
		b.recv(t, driver.RecvWR{ID: id, SGL: b.sge(0, 128)}, driver.RecvWR{ID: id + 1, SGL: b.sge(256, 128)})
		if err := b.cq.Arm(false); err != nil {
			t.Fatal(err)
		}
		a.send(t, driver.SendWR{ID: id + 2, Op: driver.OpSend, Flags: driver.Signaled, SGL: a.sge(0, 90)},
			driver.SendWR{ID: id + 3, Op: driver.OpSendWithImm, Flags: driver.Signaled, Inline: []byte(text)})
		a.want(t, driver.Success, id+2, id+3)
		ctx, cancel := stdcontext.WithTimeout(t.Context(), patient)
		if _, err := b.channel.Wait(ctx); err != nil {
			t.Fatal(err)
		}
		cancel()
		b.want(t, driver.Success, id, id+1)
		if got := string(b.mem.Bytes()[:90]) + string(b.mem.Bytes()[256:346]); got != text+text {
			t.Fatalf("came %q", got)
		}
	}
	binary.NativeEndian.PutUint64(b.mem.Bytes()[512:], 40)
	a.send(t, driver.SendWR{ID: 1, Op: driver.OpWrite, SGL: a.sge(0, 90), Remote: b.remote(1024)},
		driver.SendWR{ID: 2, Op: driver.OpFetchAdd, Flags: driver.Signaled, SGL: a.sge(512, 8), Remote: b.remote(512), CompareAdd: 2},
		driver.SendWR{ID: 3, Op: driver.OpRead, Flags: driver.Signaled, SGL: a.sge(2048, 90), Remote: b.remote(1024)})
	a.want(t, driver.Success, 2, 3)
	if v, w := binary.NativeEndian.Uint64(a.mem.Bytes()[512:]), binary.NativeEndian.Uint64(b.mem.Bytes()[512:]); v != 40 || w != 42 {
		t.Errorf("an atomic brought %d and left %d", v, w)
	}
	if got := string(a.mem.Bytes()[2048:2138]); got != string(a.mem.Bytes()[:90]) {
		t.Errorf("read %q", got)
	}
	a.send(t, driver.SendWR{ID: 6, Op: driver.OpWrite, Flags: driver.Signaled, Inline: []byte("copied"), Remote: b.remote(4096)})
	a.want(t, driver.Success, 6)
	if got := string(b.mem.Bytes()[4096:4102]); got != "copied" {
		t.Errorf("came %q", got)
	}
	// A receive that is too short, whose list ends before its entry does.
	b.recv(t, driver.RecvWR{ID: 4, SGL: b.sge(0, 10)})
	a.send(t, driver.SendWR{ID: 5, Op: driver.OpSend, SGL: a.sge(0, 90)})
	a.want(t, driver.RemInvReqErr, 5)
	b.want(t, driver.LocLenErr, 4)
}

// TestScript plays the scenes of the differential trace, and leaves what the model says of
// them where the environment wants it.
func TestScript(t *testing.T) {
	traces := map[string][]string{}
	for name, s := range scenes {
		t.Run(name, func(t *testing.T) {
			k := newWatcher(t, s.ethernet)
			traces[name] = k.m.recorded(func() { s.act(t, k) })
		})
	}
	b, err := json.Marshal(traces)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(os.Getenv(scriptTraces), b, 0o644); err != nil {
		t.Fatal(err)
	}
}
