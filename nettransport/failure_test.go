package nettransport

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/purerdma/purerdma/ibverbs"
	"github.com/purerdma/purerdma/ibverbs/driver"
	"github.com/purerdma/purerdma/ibverbs/driver/memdriver"
	"github.com/purerdma/purerdma/mr"
)

// soon is Config.Timeout of tests in which the peer ends.
const soon = 20 * time.Millisecond

// bench is a connection with memory at both ends.
type bench struct {
	*pair
	f        *fabric
	smr, rmr *MR
}

func newBench(t testing.TB, c Config, devs int) *bench {
	t.Helper()
	f := newFabric(t, devs, devs, memdriver.Config{}, nil)
	b := &bench{pair: connect(t, f, c, c), f: f}
	b.smr, _ = memory(t, &b.send.Comm, 64<<10)
	b.rmr, _ = memory(t, &b.recv.Comm, 64<<10)
	return b
}

func (b *bench) irecv(n int) Request {
	b.t.Helper()
	r, ok, err := b.recv.Irecv(Buffer{MR: b.rmr, N: n, Tag: 1})
	if !ok || err != nil {
		b.t.Fatal(ok, err)
	}
	return r
}

func (b *bench) isend(n int) Request {
	b.t.Helper()
	r, ok, err := b.send.Isend(Buffer{MR: b.smr, N: n, Tag: 1})
	if !ok || err != nil {
		b.t.Fatal(ok, err)
	}
	return r
}

// outcome waits, but not for ever.
func outcome(t testing.TB, r Request) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	err := r.Wait(ctx, nil)
	if ctx.Err() != nil {
		t.Fatal("the request did not end")
	}
	return err
}

// tells wants each word in the error's text.
func tells(t testing.TB, err error, words ...string) {
	t.Helper()
	if err == nil {
		t.Fatal("no error")
	}
	for _, w := range words {
		if !strings.Contains(err.Error(), w) {
			t.Errorf("no %q in: %v", w, err)
		}
	}
}

func TestFailedCompletion(t *testing.T) {
	for _, end := range []string{"send", "receive"} {
		t.Run(end, func(t *testing.T) {
			b := newBench(t, Config{QPsPerConn: 2}, 2)
			c, dev := &b.send.Comm, "a0"
			if end == "receive" {
				c, dev = &b.recv.Comm, "b0"
			}
			early := b.irecv(8) // ends well on both ends, and is asked late
			earlySend := b.isend(8)
			b.irecv(8)
			b.f.Device(dev).FailNextRequest(driver.RetryExcErr, 0x81)
			start := b.isend
			if end == "receive" {
				b.irecv(8)
				start = b.irecv
			}
			later := start(8)
			err := outcome(t, later)
			if !errors.Is(err, ibverbs.RetryExcErr) {
				t.Fatalf("%v is no RetryExcErr", err)
			}
			var device *ibverbs.Error
			var completion *ibverbs.CompletionError
			if !errors.As(err, &device) || !errors.As(err, &completion) || completion.VendorErr != 0x81 {
				t.Fatalf("%#v", err)
			}
			lane := c.laneOf(0, completion.QPN)
			path := lane.qp.Path()
			tells(t, err, end, dev+"/1", fmt.Sprintf("QP %#x", completion.QPN), path.Local.String(), path.Remote.String(),
				fmt.Sprintf("QP %#x", path.RemoteQPN), "IBV_WC_RETRY_EXC_ERR", "0x81", c.PeerAddr().String(), c.PeerDevice())
			ok := early
			if end == "send" {
				ok = earlySend
			}
			if err := outcome(t, ok); err != nil {
				t.Errorf("what had ended well became %v", err)
			}
			sticky(t, b, c, err)
			for _, q := range c.lanes {
				if q.qp.State() != ibverbs.StateErr {
					t.Errorf("QP %#x is in %v", q.qp.Num(), q.qp.State())
				}
			}
		})
	}
}

// sticky wants the one error from every call.
func sticky(t testing.TB, b *bench, c *Comm, want error) {
	t.Helper()
	var got []error
	if c.receives {
		_, _, err := b.recv.Irecv(Buffer{MR: b.rmr, N: 1})
		_, _, flush := b.recv.Flush(Buffer{MR: b.rmr, N: 1})
		got = append(got, err, flush)
	} else {
		_, _, err := b.send.Isend(Buffer{MR: b.smr, N: 1})
		got = append(got, err)
	}
	m, err := mr.Alloc(4096)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	_, err = c.RegMR(m)
	for _, e := range append(got, err, c.Err()) {
		if e != want {
			t.Errorf("a later call returned %v", e)
		}
	}
}

// TestPeerGone ends the peer while the network says nothing, as it does when a process is killed on Soft-RoCE.
func TestPeerGone(t *testing.T) {
	t.Run("sender in flight", func(t *testing.T) {
		b := newBench(t, Config{Timeout: soon}, 2)
		done, doneSend := b.irecv(8), b.isend(8)
		_ = b.irecv(8)
		b.f.Device("a0").Silence(true)
		b.f.Device("a1").Silence(true)
		r, r2 := b.isend(8), Request{}
		if d, err := r.Test(nil); d || err != nil {
			t.Fatal(d, err)
		}
		if err := outcome(t, done); err != nil {
			t.Fatal(err)
		}
		peer := b.send.PeerAddr().String()
		if err := b.recv.Close(); err != nil {
			t.Fatal(err)
		}
		start := time.Now()
		err := outcome(t, r)
		if !errors.Is(err, ErrPeerGone) {
			t.Fatal(err)
		}
		if took := time.Since(start); took > soon+5*time.Second {
			t.Errorf("it took %v", took)
		}
		tells(t, err, peer, "b0+b1", "a0/1", "GID")
		if err := outcome(t, doneSend); err != nil {
			t.Errorf("what had ended well became %v", err)
		}
		sticky(t, b, &b.send.Comm, err)
		if _, err := r2.Test(nil); !errors.Is(err, ErrStale) {
			t.Error(err)
		}
	})
	t.Run("sender without credit", func(t *testing.T) {
		b := newBench(t, Config{Timeout: soon}, 1)
		if err := b.recv.Close(); err != nil {
			t.Fatal(err)
		}
		for {
			_, ok, err := b.send.Isend(Buffer{MR: b.smr, N: 1})
			if ok {
				t.Fatal("sent")
			}
			if err != nil {
				if !errors.Is(err, ErrPeerGone) {
					t.Error(err)
				}
				break
			}
			time.Sleep(time.Millisecond)
		}
	})
	t.Run("receiver", func(t *testing.T) {
		b := newBench(t, Config{Timeout: soon}, 1)
		rs := []Request{b.irecv(8), b.irecv(8), b.irecv(8)}
		s := b.isend(8)
		if err := outcome(t, s); err != nil {
			t.Fatal(err)
		}
		if err := b.send.Close(); err != nil {
			t.Fatal(err)
		}
		if err := outcome(t, rs[1]); !errors.Is(err, ErrPeerGone) {
			t.Fatal(err)
		}
		if err := outcome(t, rs[0]); err != nil {
			t.Errorf("the message that had come became %v", err)
		}
		if err := outcome(t, rs[2]); !errors.Is(err, ErrPeerGone) {
			t.Error(err)
		}
	})
}

// TestLateCompletions gives those that come after the peer's end their time.
func TestLateCompletions(t *testing.T) {
	b := newBench(t, Config{}, 1)
	b.f.Device("a0").HoldCompletions()
	b.irecv(8)
	s := b.isend(8)
	if err := b.recv.Close(); err != nil {
		t.Fatal(err)
	}
	<-b.send.gone
	if done, err := s.Test(nil); done || err != nil {
		t.Fatal(done, err)
	}
	b.f.Device("a0").ReleaseCompletions()
	if err := outcome(t, s); err != nil {
		t.Error(err)
	}
}

// TestGracefulEnd closes the sender after its last message: all of them arrive.
func TestGracefulEnd(t *testing.T) {
	b := newBench(t, Config{Timeout: soon}, 1)
	var rs, ss []Request
	for range 100 {
		rs, ss = append(rs, b.irecv(8)), append(ss, b.isend(8))
	}
	for _, s := range ss {
		if err := outcome(t, s); err != nil {
			t.Fatal(err)
		}
	}
	if err := b.send.Close(); err != nil {
		t.Fatal(err)
	}
	time.Sleep(3 * soon)
	for i, r := range rs {
		if err := outcome(t, r); err != nil {
			t.Fatalf("message %d: %v", i, err)
		}
	}
}

func TestNoProgress(t *testing.T) {
	b := newBench(t, Config{ProgressTimeout: soon}, 1)
	time.Sleep(3 * soon) // nothing in flight
	if _, ok, err := b.send.Isend(Buffer{MR: b.smr}); ok || err != nil {
		t.Fatal(ok, err)
	}
	r := b.irecv(8)
	err := outcome(t, r)
	if !errors.Is(err, ErrNoProgress) {
		t.Fatal(err)
	}
	tells(t, err, b.recv.PeerAddr().String(), "20ms")
	if err := b.send.Err(); err != nil {
		t.Error(err)
	}
}

func TestEvents(t *testing.T) {
	tests := map[string]struct {
		raise func(b *bench)
		want  error
		words []string
	}{
		"QP fatal": {
			raise: func(b *bench) { b.f.Device("a1").RaiseQP(b.send.lanes[1].qp.Num(), driver.EventQPFatal) },
			words: []string{"IBV_EVENT_QP_FATAL", "a1/1", "QP 0x", "GID"},
		},
		"QP access": {
			raise: func(b *bench) { b.f.Device("a0").RaiseQP(b.send.lanes[0].qp.Num(), driver.EventQPAccessErr) },
			words: []string{"IBV_EVENT_QP_ACCESS_ERR", "a0/1"},
		},
		"device": {
			raise: func(b *bench) { b.f.Remove("a1") },
			want:  ibverbs.ErrDeviceGone,
			words: []string{"a1"},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, Config{}, 2)
			tt.raise(b)
			err := eventually(t, b)
			tells(t, err, append(tt.words, b.send.PeerAddr().String())...)
			if tt.want != nil && !errors.Is(err, tt.want) {
				t.Errorf("%v is no %v", err, tt.want)
			}
			sticky(t, b, &b.send.Comm, err)
		})
	}
}

// eventually is the error of a sender that polls for credit.
func eventually(t testing.TB, b *bench) error {
	t.Helper()
	for end := time.Now().Add(10 * time.Second); time.Now().Before(end); time.Sleep(time.Millisecond) {
		if _, _, err := b.send.Isend(Buffer{MR: b.smr, N: 1}); err != nil {
			return err
		}
	}
	t.Fatal("the connection did not fail")
	return nil
}

// TestPortEvent fails nothing by itself, but a later failure tells of it.
func TestPortEvent(t *testing.T) {
	b := newBench(t, Config{Timeout: soon}, 1)
	b.f.Device("a0").SetPort(1, driver.PortDown)
	for b.send.rails[0].port.dev.newsOf(1) == "" {
		time.Sleep(time.Millisecond)
	}
	b.f.Device("a0").SetPort(1, driver.PortActive)
	for !strings.Contains(b.send.rails[0].port.dev.newsOf(1), "ACTIVE") {
		time.Sleep(time.Millisecond)
	}
	r, s := b.irecv(8), b.isend(8)
	if err := errors.Join(outcome(t, r), outcome(t, s)); err != nil {
		t.Fatal(err)
	}
	b.irecv(8)
	b.f.Device("a0").SetPort(1, driver.PortDown)
	s = b.isend(8)
	if err := b.recv.Close(); err != nil {
		t.Fatal(err)
	}
	tells(t, outcome(t, s), "IBV_EVENT_PORT_ERR")
}

func TestCloseInFlight(t *testing.T) {
	b := newBench(t, Config{Timeout: soon}, 1)
	done, doneSend := b.irecv(8), b.isend(8)
	r, r2 := b.irecv(8), b.irecv(8)
	s := b.isend(8)
	if err := b.rmr.Close(); !errors.Is(err, ErrBusy) {
		t.Errorf("an MR in use closed: %v", err)
	}
	for range 2 {
		if err := errors.Join(b.send.Close(), b.recv.Close(), b.smr.Close(), b.rmr.Close()); err != nil {
			t.Fatal(err)
		}
	}
	for _, r := range []Request{done, doneSend, r, r2, s} {
		if err := outcome(t, r); !errors.Is(err, ErrClosed) {
			t.Error(err)
		}
	}
	sticky(t, b, &b.send.Comm, b.send.Err())
	sticky(t, b, &b.recv.Comm, b.recv.Err())
}

// TestEndsDisagree is NCCL_IB_SPLIT_DATA_ON_QPS at one end only, which in NCCL gives wrong data.
func TestEndsDisagree(t *testing.T) {
	for _, size := range []int{100, 1000} {
		for _, split := range []bool{false, true} {
			t.Run(fmt.Sprintf("%d bytes, sender splits %v", size, split), func(t *testing.T) {
				f := newFabric(t, 1, 1, memdriver.Config{}, nil)
				b := &bench{f: f, pair: connect(t, f, Config{QPsPerConn: 4, Split: split}, Config{Split: !split})}
				b.smr, _ = memory(t, &b.send.Comm, 64<<10)
				b.rmr, _ = memory(t, &b.recv.Comm, 64<<10)
				var rs []Request
				for range 8 {
					rs = append(rs, b.irecv(size))
				}
				for range 8 {
					b.isend(size)
				}
				var err error
				for _, r := range rs {
					if err = outcome(t, r); err != nil {
						break
					}
				}
				if !errors.Is(err, ErrProtocol) {
					t.Fatal(err)
				}
				tells(t, err, "NCCL_IB_SPLIT_DATA_ON_QPS", b.recv.PeerAddr().String())
			})
		}
	}
}

// TestQPCounts lets the ends have different numbers: the connector's counts.
func TestQPCounts(t *testing.T) {
	f := newFabric(t, 1, 1, memdriver.Config{}, nil)
	p := connect(t, f, Config{QPsPerConn: 4}, Config{QPsPerConn: 2})
	if len(p.recv.Paths()) != 4 {
		t.Errorf("%d queue pairs", len(p.recv.Paths()))
	}
	p.transfer([]int{1, 2, 3, 4, 5}, 1)
}

// TestFailedPost lets one message of several be posted on one of two queue pairs only. What was posted before has not succeeded
// either, whatever completions of earlier groups were counted for.
func TestFailedPost(t *testing.T) {
	var delays []time.Duration
	f := newFabric(t, 1, 1, memdriver.Config{Delay: func() time.Duration {
		if len(delays) == 0 {
			return 0
		}
		d := delays[0]
		delays = delays[1:]
		return d
	}}, nil)
	config := Config{QPsPerConn: 2, Split: true}
	p := connect(t, f, config, config)
	sm, sb := memory(t, &p.send.Comm, 1<<16)
	rm, rb := memory(t, &p.recv.Comm, 1<<16)
	for i := range sb {
		sb[i] = 0xaa
	}
	posted := func(r Request, ok bool, err error) Request {
		t.Helper()
		if !ok || err != nil {
			t.Fatal(ok, err)
		}
		return r
	}
	ctx := t.Context()
	// The request slots remember a group of two.
	r := posted(p.recv.Irecv(Buffer{MR: rm, N: 8, Tag: 1}, Buffer{MR: rm, Off: 8, N: 8, Tag: 2}))
	first := posted(p.send.Isend(Buffer{MR: sm, N: 8, Tag: 1}))
	second := posted(p.send.Isend(Buffer{MR: sm, N: 8, Tag: 2}))
	if err := errors.Join(second.Wait(ctx, nil), first.Wait(ctx, nil), r.Wait(ctx, nil)); err != nil {
		t.Fatal(err)
	}

	posted(p.recv.Irecv(Buffer{MR: rm, Off: 4096, N: 8192, Tag: 3}))
	posted(p.recv.Irecv(Buffer{MR: rm, Off: 32768, N: 8192, Tag: 4}))
	delays = []time.Duration{0, time.Hour}
	half := posted(p.send.Isend(Buffer{MR: sm, N: 8192, Tag: 3}))
	if done, err := half.Test(nil); done || err != nil {
		t.Fatal(done, err)
	}
	f.Device("a0").FailNext(memdriver.OpPostSend, nil, syscall.EIO)
	if _, ok, err := p.send.Isend(Buffer{MR: sm, N: 8192, Tag: 4}); ok || !errors.Is(err, syscall.EIO) {
		t.Fatalf("a send whose post fails says %v, %v", ok, err)
	}
	if done, err := half.Test(nil); !done || !errors.Is(err, syscall.EIO) {
		t.Errorf("a message of which half has left (%v, %v) ends with %v, %v", rb[4096] == 0xaa, rb[4096+8191] == 0xaa, done, err)
	}
}

// TestProgressTimeoutCountsWithRequestsOnly lets a program compute for longer than the time-out between two messages.
func TestProgressTimeoutCountsWithRequestsOnly(t *testing.T) {
	f := newFabric(t, 1, 1, memdriver.Config{}, nil)
	const limit = 200 * time.Millisecond
	p := connect(t, f, Config{}, Config{ProgressTimeout: limit})
	sm, _ := memory(t, &p.send.Comm, 64)
	rm, _ := memory(t, &p.recv.Comm, 64)
	for range 2 {
		r, ok, err := p.recv.Irecv(Buffer{MR: rm, N: 8})
		if !ok || err != nil {
			t.Fatal(ok, err)
		}
		for range 4 * idleLooks {
			if done, err := r.Test(nil); done {
				t.Fatalf("nothing was sent, and the receive ended: %v", err)
			}
		}
		s, err := p.send.Send(t.Context(), Buffer{MR: sm, N: 8})
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(s.Wait(t.Context(), nil), r.Wait(t.Context(), nil)); err != nil {
			t.Fatal(err)
		}
		p.recv.lastProgress = p.recv.lastProgress.Add(-2 * limit) // the program computed
	}
}

func TestAcceptAfterClose(t *testing.T) {
	f := newFabric(t, 1, 1, memdriver.Config{}, nil)
	l, err := transport(t, f.send, Config{}).Listen(t.Context(), 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	_, waited := l.Accept(t.Context())
	_, tried := l.TryAccept()
	for _, err := range []error{waited, tried} {
		if !errors.Is(err, ErrClosed) || !errors.Is(err, net.ErrClosed) {
			t.Errorf("a closed listener says %v", err)
		}
	}
}

// TestSendWaits sends before there is an offer, and with a context that ends before one comes.
func TestSendWaits(t *testing.T) {
	f := newFabric(t, 1, 1, memdriver.Config{}, nil)
	p := connect(t, f, Config{}, Config{})
	sm, sb := memory(t, &p.send.Comm, 64)
	rm, rb := memory(t, &p.recv.Comm, 64)
	copy(sb, "waited")
	short, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	if _, err := p.send.Send(short, Buffer{MR: sm, N: 6}); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("a send without an offer ends with %v", err)
	}
	sent := make(chan error, 1)
	go func() {
		r, err := p.send.Send(t.Context(), Buffer{MR: sm, N: 6})
		if err == nil {
			err = r.Wait(t.Context(), nil)
		}
		sent <- err
	}()
	r, ok, err := p.recv.Irecv(Buffer{MR: rm, N: 64})
	if !ok || err != nil {
		t.Fatal(ok, err)
	}
	var size [1]int
	if err := errors.Join(r.Wait(t.Context(), size[:]), <-sent); err != nil {
		t.Fatal(err)
	}
	if got := string(rb[:size[0]]); got != "waited" {
		t.Errorf("received %q", got)
	}
}
