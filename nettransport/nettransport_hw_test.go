//go:build hw

package nettransport

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"os/exec"
	"testing"
	"time"

	"github.com/purerdma/purerdma/ibverbs"
	"github.com/purerdma/purerdma/internal/hwtest"
)

func timeoutContext() (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.Background(), deadline)
}

// TestTwoProcesses moves the whole plan between this process and another over a real device.
func TestTwoProcesses(t *testing.T) {
	for _, same := range []bool{false, true} {
		for _, qps := range []int{1, 4, 8} {
			for _, split := range []bool{false, true} {
				t.Run(fmt.Sprintf("one device %v/qps=%d/split=%v", same, qps, split), func(t *testing.T) {
					a, b := hwtest.Pair(t, same)
					send, recv := jobs(a, b, job{QPs: qps, Split: split, Seed: hwtest.Seed(t)})
					e, c, o := receiver(t, recv, send)
					start := time.Now()
					err := recv.receive(c, e)
					if err != nil {
						o.kill()
						t.Fatalf("%v\n%s", err, o.errs.String())
					}
					took, stats := time.Since(start), c.Stats()
					o.end()
					if err := e.close(c); err != nil {
						t.Error(err)
					}
					t.Logf("%d messages, %d bytes in %v", stats.Messages, stats.Bytes, took)
				})
			}
		}
	}
}

// receiver makes this process the receiver and starts the sender.
func receiver(t *testing.T, mine, theirs job) (*connected, *RecvComm, *other) {
	t.Helper()
	e, err := mine.open()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := timeoutContext()
	defer cancel()
	l, err := e.tr.Listen(ctx, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	h := l.Handle()
	theirs.Handle = hex.EncodeToString(h[:])
	o := startOther(t, theirs)
	c, err := l.Accept(ctx)
	if err != nil {
		o.kill()
		t.Fatalf("%v\n%s", err, o.errs.String())
	}
	if e.mr, err = c.RegMR(e.buf); err != nil {
		t.Fatal(err)
	}
	o.line("up")
	return e, c, o
}

// TestKilledSender and TestKilledReceiver kill the other process in the middle of a transfer.
func TestKilledSender(t *testing.T) {
	for _, qps := range []int{1, 8} {
		t.Run(fmt.Sprint(qps), func(t *testing.T) {
			before := resources(t)
			a, b := hwtest.Pair(t, false)
			send, recv := jobs(a, b, job{QPs: qps, Endless: true})
			e, c, o := receiver(t, recv, send)
			failed := make(chan error, 1)
			moved := make(chan struct{})
			go func() { failed <- endless(tellAfter(moved, 20, recv, c, e)) }()
			killed(t, o, moved, failed, c.PeerAddr().String())
			if err := e.close(c); err != nil {
				t.Error(err)
			}
			gone(t, before)
		})
	}
}

func TestKilledReceiver(t *testing.T) {
	before := resources(t)
	a, b := hwtest.Pair(t, false)
	send, recv := jobs(a, b, job{QPs: 4, Split: true, Endless: true})
	o := startOther(t, recv)
	var h Handle
	if _, err := hex.Decode(h[:], []byte(o.line("handle"))); err != nil {
		t.Fatal(err)
	}
	e, err := send.open()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := timeoutContext()
	defer cancel()
	c, err := e.tr.Connect(ctx, 0, h)
	if err != nil {
		t.Fatal(err)
	}
	if e.mr, err = c.RegMR(e.buf); err != nil {
		t.Fatal(err)
	}
	o.line("up")
	failed := make(chan error, 1)
	moved := make(chan struct{})
	started := 0
	go func() {
		failed <- endless(func() (Request, bool, error) {
			r, ok, err := c.Isend(Buffer{MR: e.mr, N: 32 << 10, Tag: 7})
			if ok {
				if started++; started == 20 {
					close(moved)
				}
			}
			return r, ok, err
		})
	}()
	killed(t, o, moved, failed, c.PeerAddr().String())
	if err := e.close(c); err != nil {
		t.Error(err)
	}
	gone(t, before)
}

// tellAfter closes moved when so many receives were started.
func tellAfter(moved chan struct{}, n int, j job, c *RecvComm, e *connected) func() (Request, bool, error) {
	return func() (Request, bool, error) {
		r, ok, err := c.Irecv(Buffer{MR: e.mr, N: 32 << 10, Tag: 7})
		if ok {
			if n--; n == 0 {
				close(moved)
			}
		}
		return r, ok, err
	}
}

// killed kills the other process once data moves, and wants the error in time and with the peer's name.
func killed(t *testing.T, o *other, moved chan struct{}, failed chan error, peer string) {
	t.Helper()
	select {
	case <-moved:
	case err := <-failed:
		t.Fatal(err)
	case <-time.After(deadline):
		t.Fatal("no data moves")
	}
	o.kill()
	start := time.Now()
	select {
	case err := <-failed:
		t.Logf("after %v: %v", time.Since(start), err)
		// A device that notices first tells by its completions.
		if !errors.Is(err, ErrPeerGone) && !errors.Is(err, ibverbs.RetryExcErr) && !errors.Is(err, ibverbs.RemAccessErr) {
			t.Error(err)
		}
		tells(t, err, peer, "QP 0x", "GID")
		if took := time.Since(start); took > defaultTimeout+time.Second {
			t.Errorf("it took %v", took)
		}
	case <-time.After(30 * time.Second):
		t.Error("nothing told that the peer is gone")
	}
}

// resources is what the kernel holds for RDMA, "" without the tool.
func resources(t *testing.T) string {
	t.Helper()
	out, err := exec.Command("rdma", "res", "show").CombinedOutput()
	if err != nil {
		t.Logf("what the kernel holds is not looked at: rdma res show: %v", err)
		return ""
	}
	return string(out)
}

// gone wants the kernel to hold what it held before.
func gone(t *testing.T, before string) {
	t.Helper()
	if before == "" {
		return
	}
	var now string
	for end := time.Now().Add(10 * time.Second); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		if now = resources(t); now == before {
			return
		}
	}
	t.Errorf("the kernel holds\n%s\nand held before\n%s", now, before)
}
