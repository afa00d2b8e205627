package mlx5model

import (
	stdcontext "context"
	"io/fs"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"testing/fstest"

	"github.com/purerdma/purerdma/ibverbs"
	"github.com/purerdma/purerdma/ibverbs/driver"
	"github.com/purerdma/purerdma/ibverbs/internal/kernel"
	"github.com/purerdma/purerdma/ibverbs/internal/mlx5"
	"github.com/purerdma/purerdma/ibverbs/internal/uverbs"
	"github.com/purerdma/purerdma/internal/hwtest"
	"github.com/purerdma/purerdma/internal/pingpong"
)

// ourDriver is the driver of package mlx5 in a world whose only device is the model. What
// the environment would ask for is asked for here.
func ourDriver(k uverbs.Kernel, c Config, cqe int) driver.Driver {
	sys := fstest.MapFS{}
	for name, text := range c.sysfs() {
		sys[filepath.ToSlash(name)] = &fstest.MapFile{Data: []byte(text + "\n")}
	}
	sys[driverLink] = &fstest.MapFile{Data: []byte(driverFolder), Mode: fs.ModeSymlink}
	return kernel.New(kernel.World{
		Kernel:        k,
		Sys:           sys,
		Dev:           fstest.MapFS{"infiniband/uverbs0": &fstest.MapFile{}},
		DevDir:        "/dev",
		Proc:          fstest.MapFS{},
		Netlink:       func(uint16, bool, []byte) ([][]byte, error) { return nil, syscall.EPROTONOSUPPORT },
		Uevents:       func(stdcontext.Context, func([]byte)) error { return syscall.EPERM },
		InterfaceName: func(int) string { return "" },
		NetDevice:     func(string) (string, error) { return "", syscall.ENODEV },
	}, mlx5.Provider{Allowed: true, CQESize: cqe})
}

// openOurs opens the model by our driver.
func openOurs(t testing.TB, k uverbs.Kernel, c Config, cqe int) driver.Context {
	t.Helper()
	ds, err := ourDriver(k, c, cqe).Devices()
	if err != nil || len(ds) != 1 {
		t.Fatalf("%d devices, %v", len(ds), err)
	}
	dev, err := ds[0].Open()
	if err != nil {
		t.Fatal(err)
	}
	return dev
}

// TestPingpongWithOurs has rdma-core's programs on libmlx5 at one end, and our driver at the
// other.
func TestPingpongWithOurs(t *testing.T) {
	l := newLab(t, false, "ibv_rc_pingpong")
	for _, v := range l.Env(l.library) {
		name, value, _ := strings.Cut(v, "=")
		t.Setenv(name, value)
	}
	for i, s := range []pingpong.Session{
		{Kind: pingpong.RC, Size: 16, Rounds: 60, Depth: 20, Events: true},
		{Kind: pingpong.RC, Size: 4096, Rounds: 60, Depth: 20},
		{Kind: pingpong.UC, Size: 4096, Rounds: 60, Depth: 20},
	} {
		if testing.Short() && i >= 1 {
			return
		}
		for _, serves := range []bool{false, true} {
			t.Run(s.Kind.Program()+map[bool]string{false: ", client", true: ", server"}[serves], func(t *testing.T) {
				sessionOfOurs(t, s, serves, ibverbs.WithDrivers(ourDriver(NewLocal(l.m), l.m.config, 0)))
			})
		}
	}
}

// sessionOfOurs plays the part of our driver in a session with rdma-core's program.
func sessionOfOurs(t *testing.T, s pingpong.Session, serves bool, opts ...ibverbs.Option) {
	t.Helper()
	dev, err := ibverbs.Open("mlx5_0", opts...)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := dev.Close(); err != nil {
			t.Error(err)
		}
	}()
	gids, err := dev.GIDs(1)
	if err != nil || len(gids) == 0 {
		t.Fatalf("%d GIDs, %v", len(gids), err)
	}
	at := hwtest.Place{Device: "mlx5_0", Port: 1, GID: gids[0], MTU: ibverbs.MTU4096, Link: ibverbs.LinkInfiniBand}
	s.Run(t, dev, at, at, serves)
}

// connectOurs connects a reliable connection to the queue pair of a number on InfiniBand.
// Who does not answer is lost after 9 ms.
func connectOurs(t testing.TB, q *ibverbs.QP, peer uint32) {
	t.Helper()
	for _, s := range []struct {
		attr ibverbs.QPAttr
		mask ibverbs.QPMask
	}{
		{ibverbs.QPAttr{State: ibverbs.StateInit, Port: 1, Access: ibverbs.RemoteWrite | ibverbs.RemoteRead | ibverbs.RemoteAtomic},
			ibverbs.QPPort | ibverbs.QPPKeyIndex | ibverbs.QPAccessFlags},
		{ibverbs.QPAttr{State: ibverbs.StateRTR, AH: ibverbs.AHAttr{DLID: lid, Port: 1}, PathMTU: ibverbs.MTU1024, DestQPN: peer, MaxDestRdAtomic: 1, MinRNRTimer: 1},
			ibverbs.QPAV | ibverbs.QPPathMTU | ibverbs.QPDestQPN | ibverbs.QPRQPSN | ibverbs.QPMaxDestRdAtomic | ibverbs.QPMinRNRTimer},
		{ibverbs.QPAttr{State: ibverbs.StateRTS, Timeout: 8, RetryCnt: 7, RNRRetry: 7, MaxRdAtomic: 1},
			ibverbs.QPSQPSN | ibverbs.QPTimeout | ibverbs.QPRetryCnt | ibverbs.QPRNRRetry | ibverbs.QPMaxQPRdAtomic},
	} {
		if err := q.Modify(&s.attr, s.mask|ibverbs.QPStateMask); err != nil {
			t.Fatal(err)
		}
	}
}

// TestIndicesPassTheirWidth sends so much that the indices of both queues, which have 16
// bits, begin again.
func TestIndicesPassTheirWidth(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	const batch, rounds = 64, 1<<16/64 + 40
	m := New(Config{Fault: func(s string) { t.Error("model: " + s) }})
	dev, err := ibverbs.Open("mlx5_0", ibverbs.WithDrivers(ourDriver(NewLocal(m), m.config, 0)))
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := dev.Close(); err != nil {
			t.Error(err)
		}
	}()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	pd, err := dev.AllocPD()
	must(err)
	cq, err := dev.CreateCQ(4 * batch)
	must(err)
	var qps [2]*ibverbs.QP
	for i := range qps {
		qps[i], err = pd.CreateQP(ibverbs.QPConfig{Type: ibverbs.RC, SendCQ: cq, RecvCQ: cq, Cap: ibverbs.QPCap{SendWR: batch, RecvWR: batch, SendSGE: 1, RecvSGE: 1}})
		must(err)
	}
	for i, q := range qps {
		connectOurs(t, q, qps[1-i].Num())
	}
	var sends [batch]ibverbs.SendWR
	var recvs [batch]ibverbs.RecvWR
	wcs := make([]ibverbs.WC, 2*batch)
	for round := range rounds {
		for i := range batch {
			id := uint64(round*batch + i)
			recvs[i] = ibverbs.RecvWR{ID: id}
			sends[i] = ibverbs.SendWR{ID: id, Op: ibverbs.OpSendWithImm, Imm: uint32(id)}
		}
		sends[batch-1].Flags = ibverbs.Signaled
		_, err := qps[1].PostRecv(recvs[:]...)
		must(err)
		_, err = qps[0].PostSend(sends[:]...)
		must(err)
		sent, received := uint64(round*batch), uint64(round*batch)
		for until := uint64((round + 1) * batch); sent < until || received < until; {
			n, err := cq.Poll(wcs)
			must(err)
			for i := range wcs[:n] {
				wc := &wcs[i]
				must(cq.Err(wc))
				if wc.QPN == qps[0].Num() {
					sent = wc.ID + 1
					continue
				}
				if wc.ID != received || wc.Imm != uint32(received) {
					t.Fatalf("receive %d came with %d, want %d", wc.ID, wc.Imm, received)
				}
				received++
			}
			if n == 0 {
				runtime.Gosched()
			}
		}
	}
}
