package mlx5model

import (
	"maps"
	"os/exec"
	"syscall"
	"testing"
	"time"

	"github.com/purerdma/purerdma/ibverbs"
	buffers "github.com/purerdma/purerdma/mr"
	"golang.org/x/sys/unix"
)

// TestMemoryOfAProgramThatHasEnded tells it from addresses that are not mapped.
func TestMemoryOfAProgramThatHasEnded(t *testing.T) {
	cmd := exec.Command("sleep", "600")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	p := process(cmd.Process.Pid)
	var b [1]byte
	if err := p.read(0, b[:]); err != syscall.EFAULT || p.ended() {
		t.Errorf("a program that runs has ended: %v, %v", p.ended(), err)
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	// Its number is nobody else's before it is waited for.
	if err := unix.Waitid(unix.P_PID, cmd.Process.Pid, nil, unix.WEXITED|unix.WNOWAIT, nil); err != nil {
		t.Fatal(err)
	}
	if err := p.write(0, b[:]); err != syscall.ESRCH || !p.ended() {
		t.Errorf("a program that was killed has ended: %v, %v", p.ended(), err)
	}
	_ = cmd.Wait() // was killed
}

// noMemory is that of a program that has ended after some more reads.
type noMemory struct {
	memory
	reads int
}

func (n *noMemory) read(at uint64, b []byte) error {
	if n.reads == 0 {
		return syscall.ESRCH
	}
	n.reads--
	return n.memory.read(at, b)
}

func (n *noMemory) write(uint64, []byte) error { return syscall.ESRCH }
func (n *noMemory) ended() bool                { return n.reads == 0 }

// endOfOurs is a queue pair of a context of its own.
type endOfOurs struct {
	*context
	qp *ibverbs.QP
	cq *ibverbs.CQ
	mr *ibverbs.MR
}

func openEndOfOurs(t *testing.T, m *Model) *endOfOurs {
	t.Helper()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	m.mu.Lock()
	before := maps.Clone(m.contexts)
	m.mu.Unlock()
	dev, err := ibverbs.Open("mlx5_0", ibverbs.WithDrivers(ourDriver(NewLocal(m), m.config, 0)))
	must(err)
	t.Cleanup(func() { must(dev.Close()) })
	e := &endOfOurs{}
	m.mu.Lock()
	for c := range m.contexts {
		if _, ok := before[c]; !ok {
			e.context = c
		}
	}
	m.mu.Unlock()
	pd, err := dev.AllocPD()
	must(err)
	e.cq, err = dev.CreateCQ(4)
	must(err)
	buf, err := buffers.Alloc(4096)
	must(err)
	t.Cleanup(func() { must(buf.Close()) })
	e.mr, err = pd.RegMR(buf, ibverbs.LocalWrite|ibverbs.RemoteWrite|ibverbs.RemoteRead|ibverbs.RemoteAtomic)
	must(err)
	e.qp, err = pd.CreateQP(ibverbs.QPConfig{Type: ibverbs.RC, SendCQ: e.cq, RecvCQ: e.cq, Cap: ibverbs.QPCap{SendWR: 4, RecvWR: 4, SendSGE: 1, RecvSGE: 1}})
	must(err)
	return e
}

// have gives a program other memory until the function that it returns is called.
func (e *endOfOurs) have(mem memory) (back func()) {
	set := func(mem memory) memory {
		e.m.mu.Lock()
		defer e.m.mu.Unlock()
		had := e.mem
		e.mem = mem
		return had
	}
	had := set(mem)
	return func() { set(had) }
}

// TestPeerThatHasEnded has a peer whose program has ended, while its queue pair is there:
// nobody answers, so the requester gives up in its own time.
func TestPeerThatHasEnded(t *testing.T) {
	for name, wr := range map[string]ibverbs.SendWR{
		"send":                 {Op: ibverbs.OpSend},
		"write":                {Op: ibverbs.OpWrite},
		"write with immediate": {Op: ibverbs.OpWriteWithImm},
		"read":                 {Op: ibverbs.OpRead},
		"atomic":               {Op: ibverbs.OpFetchAdd},
	} {
		t.Run(name, func(t *testing.T) {
			m := New(Config{Fault: func(s string) { t.Error("model: " + s) }})
			a, b := openEndOfOurs(t, m), openEndOfOurs(t, m)
			connectOurs(t, a.qp, b.qp.Num())
			connectOurs(t, b.qp, a.qp.Num())
			if _, err := b.qp.PostRecv(ibverbs.RecvWR{SGL: []ibverbs.SGE{b.mr.SGE(0, 8)}}); err != nil {
				t.Fatal(err)
			}
			defer b.have(&noMemory{})()
			wr.Flags, wr.SGL, wr.Remote = ibverbs.Signaled, []ibverbs.SGE{a.mr.SGE(0, 8)}, b.mr.Remote(8)
			if _, err := a.qp.PostSend(wr); err != nil {
				t.Fatal(err)
			}
			var wcs [1]ibverbs.WC
			if _, err := a.cq.Wait(t.Context(), wcs[:]); err != nil {
				t.Fatal(err)
			}
			if wcs[0].Status != ibverbs.RetryExcErr {
				t.Errorf("%v, want %v", wcs[0].Status, ibverbs.RetryExcErr)
			}
		})
	}
}

// TestRequesterThatHasEnded has a program end between the look at its record and that at
// its entry, which is no fault.
func TestRequesterThatHasEnded(t *testing.T) {
	m := New(Config{Fault: func(s string) { t.Error("model: " + s) }})
	a, b := openEndOfOurs(t, m), openEndOfOurs(t, m)
	connectOurs(t, a.qp, b.qp.Num())
	connectOurs(t, b.qp, a.qp.Num())
	m.mu.Lock()
	had := a.mem
	if _, err := a.qp.PostSend(ibverbs.SendWR{Op: ibverbs.OpWrite, Flags: ibverbs.Signaled, SGL: []ibverbs.SGE{a.mr.SGE(0, 8)}, Remote: b.mr.Remote(8)}); err != nil {
		t.Error(err)
	}
	a.mem = &noMemory{memory: had, reads: 1}
	if m.qps[a.qp.Num()].run(time.Now()) {
		t.Error("the entry of a program that has ended is executed")
	}
	a.mem = had
	m.mu.Unlock()
	var wcs [1]ibverbs.WC
	if _, err := a.cq.Wait(t.Context(), wcs[:]); err != nil || wcs[0].Status != ibverbs.Success {
		t.Errorf("%v, %v", wcs[0].Status, err)
	}
}
