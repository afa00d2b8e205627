//go:build hw && linux

package rxe

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/purerdma/purerdma/ibverbs/driver"
	"github.com/purerdma/purerdma/ibverbs/internal/uapi"
	"github.com/purerdma/purerdma/internal/offheap"
	"golang.org/x/sys/unix"
)

// The kernel registers its own rings, if asked.
func TestHWRegisterRing(t *testing.T) {
	a, _ := local(t, shape{})
	for name, s := range map[string]offheap.Span{"CQ": a.cq.q.mem, "send queue": a.qp.sq.mem, "receive queue": a.qp.rq.mem} {
		if _, err := a.pd.RegMR(s, s.Addr(), driver.LocalWrite); err != errRing {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestHWRegister(t *testing.T) {
	a, _ := local(t, shape{})
	part := get(a.mem.Slice(100, 5000))(t)
	for _, test := range []struct {
		name   string
		s      offheap.Span
		iova   uint64
		access driver.Access
		want   error
	}{
		{"unaligned", part, part.Addr(), driver.LocalWrite, nil},
		{"other address, same offset", part, 1<<40 + part.Addr()%4096, driver.LocalWrite, nil},
		{"other offset", part, part.Addr() + 1, driver.LocalWrite, syscall.EINVAL},
		{"read only", part, part.Addr(), driver.RemoteRead, nil},
		{"remote write alone", part, part.Addr(), driver.RemoteWrite, syscall.EINVAL},
		{"remote atomic alone", part, part.Addr(), driver.RemoteAtomic, syscall.EINVAL},
		{"nothing", offheap.Span{}, 0, driver.LocalWrite, syscall.EINVAL},
		{"on demand", part, part.Addr(), driver.OnDemand | driver.LocalWrite, driver.ErrNotSupported},
		{"relaxed ordering", part, part.Addr(), driver.RelaxedOrdering | driver.LocalWrite, nil},
	} {
		mr, err := a.pd.RegMR(test.s, test.iova, test.access)
		if !errors.Is(err, test.want) {
			t.Errorf("%s: %v, want %v", test.name, err, test.want)
		}
		if err == nil {
			must(t, mr.Close())
		}
	}
}

// Memory that is unmapped while it is registered stays until the MR is closed.
func TestHWBufferClosedFirst(t *testing.T) {
	a, b := local(t, shape{})
	a.to(driver.StateRTS, b)
	b.to(driver.StateRTS, a)
	s := get(offheap.Map(4096, offheap.Options{}))(t)
	copy(s.Bytes(), "still here")
	mr := get(a.pd.RegMR(s, s.Addr(), driver.LocalWrite))(t)
	must(t, s.Release())
	lkey, _ := mr.Keys()
	a.send(driver.SendWR{Op: driver.OpWrite, Flags: driver.Signaled, SGL: []driver.SGE{{Addr: s.Addr(), Length: 10, LKey: lkey}}, Remote: b.remote(0)})
	a.one(driver.Success)
	if got := string(b.mem.Bytes()[:10]); got != "still here" {
		t.Errorf("got %q", got)
	}
	must(t, mr.Close())
	if err := s.Retain(); err == nil {
		t.Error("the memory is still mapped")
	}
}

func TestHWDMABuf(t *testing.T) {
	a, _ := local(t, shape{})
	_, err := a.pd.RegDMABuf(driver.DMABuf{FD: 0, Length: 4096}, driver.LocalWrite)
	probe := a.dev.Probe(driver.FeatureDMABuf)
	for _, err := range []error{err, probe} {
		var e *driver.NotSupportedError
		if !errors.As(err, &e) || e.By != driver.LacksDevice || !errors.Is(err, unix.EOPNOTSUPP) {
			t.Errorf("%v", err)
		}
	}
}

// Nothing of a closed context is left: no mapped ring, no descriptor, no object.
// A ring that stayed mapped would keep the objects alive.
func TestHWTearDown(t *testing.T) {
	at, there := pair(t, random(t), false)
	fds := func() int { return len(get(os.ReadDir("/proc/self/fd"))(t)) }
	before := fds()
	t.Run("connection", func(t *testing.T) {
		a, b := connected(t, at, there, shape{events: true})
		a.send(driver.SendWR{Op: driver.OpWrite, SGL: []driver.SGE{a.sge(0, 8)}, Remote: b.remote(0)})
		if err := a.cq.Close(); err != driver.ErrBusy {
			t.Errorf("CQ in use: %v", err)
		}
		if err := a.pd.Close(); err != driver.ErrBusy {
			t.Errorf("PD in use: %v", err)
		}
		a.send(driver.SendWR{Op: driver.OpWrite, Flags: driver.Signaled, SGL: []driver.SGE{a.sge(0, 8)}, Remote: b.remote(0)})
		a.one(driver.Success) // a refused Close changed nothing
		must(t, a.qp.Close())
		a.qp = nil
		if hs := get(a.dev.Dev.Handles(uapi.ObjectQP))(t); len(hs) != 0 {
			t.Errorf("QP handles %v are left", hs)
		}
	})
	if maps := string(get(os.ReadFile("/proc/self/maps"))(t)); strings.Contains(maps, "uverbs") {
		t.Errorf("a ring is still mapped:\n%s", maps)
	}
	if after := fds(); after != before {
		t.Errorf("%d descriptors, %d before", after, before)
	}
	if out, err := exec.Command("rdma", "res", "show", "cq").CombinedOutput(); err == nil && bytes.Contains(out, []byte("rxe.test")) {
		t.Errorf("CQs are left:\n%s", out)
	}
}

// The limit of locked memory counts only for processes without CAP_IPC_LOCK, so
// this one gives its rights up, in a process of its own.
func TestHWMemLock(t *testing.T) {
	const limit, size = 1 << 20, 4 << 20
	if os.Getenv("PURERDMA_TEST_MEMLOCK") == "" {
		if os.Getuid() != 0 {
			t.Skip("needs root, to give its rights up")
		}
		cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestHWMemLock$", "-test.v")
		cmd.Env = append(os.Environ(), "PURERDMA_TEST_MEMLOCK=1")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%v\n%s", err, out)
		}
		return
	}
	a, _ := local(t, shape{})
	must(t, syscall.Setrlimit(unix.RLIMIT_MEMLOCK, &syscall.Rlimit{Cur: limit, Max: limit}))
	must(t, syscall.Setuid(65534))
	small := get(offheap.Map(limit/4, offheap.Options{}))(t)
	defer small.Release()
	mr := get(a.pd.RegMR(small, small.Addr(), driver.LocalWrite))(t)
	big := get(offheap.Map(size, offheap.Options{}))(t)
	defer big.Release()
	_, err := a.pd.RegMR(big, big.Addr(), driver.LocalWrite)
	hinted(t, err, syscall.ENOMEM, "4194304", "1048576", "LimitMEMLOCK")
	t.Log(err)
	must(t, mr.Close()) // the rest of the clean-up shows that ioctls still work
}
