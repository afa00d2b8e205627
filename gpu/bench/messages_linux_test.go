package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"testing"
	"time"

	"github.com/purerdma/purerdma/bench/pair"
	"github.com/purerdma/purerdma/gpu"
	"github.com/purerdma/purerdma/gpu/gputest"
	"github.com/purerdma/purerdma/p2ptransport"
	"github.com/purerdma/purerdma/socketboot"
	"github.com/purerdma/purerdma/socketboot/bootstrap"
	"github.com/purerdma/purerdma/transport"
	"github.com/purerdma/purerdma/transport/driver"
)

// messagesVariable tells the second process that it is rank 1 of these tests, not the benchmark's sender.
const messagesVariable = "PURERDMA_GPUBENCH_MESSAGES"

// messageOrders is what rank 1 gets when it starts.
type messageOrders struct {
	ID      string // of the job
	Fake    bool   // the GPU is gputest's
	NoCUMEM bool
	Most    int // bytes of the longest message
	Rated   int // messages that are timed
}

// Two processes on one GPU exchange messages.
func TestMessagesOfTwoProcesses(t *testing.T) {
	d := gputest.New(gputest.Config{})
	g, err := d.Open(0)
	must(t, err)
	messagesOfTwoProcesses(t, d, g, messageOrders{Fake: true, Most: 1<<20 + 1, Rated: 2})
	must(t, g.Close())
	if left := d.Left(); len(left) > 0 {
		t.Errorf("left on the GPU: %v", left)
	}
	for _, method := range []string{"Import", "OpenIPC"} {
		if d.Calls()[method] == 0 {
			t.Errorf("nothing came by %s", method)
		}
	}
}

// messagesOfTwoProcesses is rank 0. The memory of the connection is shared by descriptor, and by legacy handle.
func messagesOfTwoProcesses(t *testing.T, d gpu.Driver, g gpu.Context, o messageOrders) {
	t.Setenv(messagesVariable, "1")
	for _, c := range []struct {
		name    string
		noCUMEM bool
	}{{"P2P, CUMEM", false}, {"P2P, IPC", true}} {
		t.Run(c.name, func(t *testing.T) {
			for _, a := range []gpu.Attribute{gpu.HasVMM, gpu.HasFDHandles} {
				if has, err := d.Attribute(g.Device().Index, a); !c.noCUMEM && (err != nil || has == 0) {
					t.Skipf("the GPU's driver shares no memory by descriptor: attribute %d is %d, %v", a, has, err)
				}
			}
			ctx, cancel := context.WithTimeout(t.Context(), patient)
			defer cancel()
			root, err := bootstrap.NewRoot(ctx, bootstrap.RootConfig{Net: socketboot.Net{Bind: netip.MustParseAddrPort("127.0.0.1:0")}})
			must(t, err)
			o := o
			o.ID, o.NoCUMEM = root.ID().String(), c.noCUMEM
			nc, wait, err := pair.Start(o, t.Output())
			if err == nil {
				err = withRank(ctx, d, g, o, 0, func(r *messenger) error {
					why, _ := r.comm.Why(transport.End{Peer: 1, Send: true})
					t.Logf("connected by %v", why)
					if why.Transport != "P2P" {
						t.Errorf("connected by %v, want P2P", why)
					}
					took, err := r.exchange(ctx, o)
					if err == nil {
						t.Logf("%d messages of %d bytes: %.1f GB/s", o.Rated, o.Most, float64(o.Rated)*float64(o.Most)/took.Seconds()/1e9)
					}
					return err
				})
				if err == nil {
					err = ended(nc)
				}
				err = errors.Join(err, nc.Close(), wait())
			}
			must(t, errors.Join(err, root.Close()))
		})
	}
}

// ended waits until the other end has closed the socket: it ends early when this end does.
func ended(nc net.Conn) error {
	if err := nc.SetReadDeadline(time.Now().Add(patient)); err != nil {
		return err
	}
	if _, err := nc.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		return fmt.Errorf("rank 1 has not ended: %w", err)
	}
	return nil
}

// messagesSecond is rank 1.
func messagesSecond() int {
	var o messageOrders
	nc, err := pair.Join(&o)
	if err == nil {
		err = errors.Join(messagesFrom(nc, o), nc.Close())
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "rank 1:", err)
		return 1
	}
	return 0
}

// messagesFrom ends early when rank 0 has, which nc tells.
func messagesFrom(nc net.Conn, o messageOrders) error {
	ctx, cancel := context.WithTimeout(context.Background(), patient)
	defer cancel()
	go func() {
		_, _ = nc.Read(make([]byte, 1))
		cancel()
	}()
	fake := gputest.New(gputest.Config{})
	d, g, err := gpu.Driver(fake), gpu.Context(nil), error(nil)
	if o.Fake {
		g, err = d.Open(0)
	} else {
		d, g, err = open(0)
	}
	if err != nil {
		return err
	}
	err = withRank(ctx, d, g, o, 1, func(r *messenger) error {
		_, err := r.exchange(ctx, o)
		return err
	})
	err = errors.Join(err, g.Close())
	if left := fake.Left(); len(left) > 0 {
		err = errors.Join(err, fmt.Errorf("left on the GPU: %v", left))
	}
	return err
}

// messenger is a rank that is connected with the other.
type messenger struct {
	rank int
	comm *transport.Communicator
	e    *end
}

// withRank does f with a rank that is connected; both have done it when the connection ends.
func withRank(ctx context.Context, d gpu.Driver, g gpu.Context, o messageOrders, rank int, f func(*messenger) error) (err error) {
	id, err := bootstrap.ParseID(o.ID)
	if err != nil {
		return err
	}
	r := &messenger{rank: rank}
	if r.e, err = newEnd(g, o.Most); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, r.e.close()) }()
	p, err := p2ptransport.New(p2ptransport.Config{Driver: d, GPU: g, NoCUMEM: o.NoCUMEM, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, p.Close()) }()
	job, err := bootstrap.Join(ctx, bootstrap.Config{ID: id, Rank: rank, Size: 2, Net: socketboot.Net{Bind: netip.MustParseAddrPort("127.0.0.1:0")}})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, job.Close()) }()
	v := transport.Variables{Buffers: driver.DefaultBuffers}
	if r.comm, err = transport.New(ctx, transport.Config{Job: job, Channels: 1, Variables: &v, Transports: []transport.Transport{p},
		Log: slog.New(slog.DiscardHandler)}); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, r.comm.Close()) }()
	if err := r.comm.Connect(ctx, transport.Pairs(rank, 2, 1)); err != nil {
		return err
	}
	if err := f(r); err != nil {
		return err
	}
	return job.Barrier(ctx)
}

// exchange moves messages of many sizes both ways at once and compares them, and then, from rank 0 to rank 1, some of the longest, which it
// times: from the first's start until rank 1 has said that it has the last.
func (r *messenger) exchange(ctx context.Context, o messageOrders) (time.Duration, error) {
	for i, n := range []int{0, 1, 7, 4096, 1 << 17, 1<<19 + 1, 1 << 20, o.Most} {
		if err := r.both(ctx, n, byte(i)); err != nil {
			return 0, fmt.Errorf("%d bytes: %w", n, err)
		}
	}
	start := time.Now()
	for range o.Rated {
		if err := r.move(ctx, r.rank == 0, o.Most); err != nil {
			return 0, err
		}
	}
	err := r.move(ctx, r.rank == 1, 0)
	return time.Since(start), err
}

// both sends n bytes and receives as many.
func (r *messenger) both(ctx context.Context, n int, salt byte) error {
	want := text(n, salt, 1-r.rank)
	if n > 0 {
		if err := errors.Join(r.e.g.WriteTo(r.e.src, text(n, salt, r.rank)), r.e.g.WriteTo(r.e.dst, make([]byte, n))); err != nil {
			return err
		}
	}
	sent := make(chan error, 1)
	go func() { sent <- r.move(ctx, true, n) }()
	if err := errors.Join(r.move(ctx, false, n), <-sent); err != nil || n == 0 {
		return err
	}
	got := make([]byte, n)
	if err := r.e.g.ReadFrom(got, r.e.dst); err != nil {
		return err
	}
	if !bytes.Equal(got, want) {
		return errors.New("the bytes differ")
	}
	return nil
}

// move sends n bytes to the other rank, or receives them.
func (r *messenger) move(ctx context.Context, send bool, n int) error {
	if send {
		return r.comm.SendGPU(ctx, 1-r.rank, transport.GPUMemory{Context: r.e.g, Ptr: r.e.src, Bytes: n})
	}
	got, err := r.comm.RecvGPU(ctx, 1-r.rank, transport.GPUMemory{Context: r.e.g, Ptr: r.e.dst, Bytes: n})
	if err == nil && got != n {
		err = fmt.Errorf("%d bytes came, want %d", got, n)
	}
	return err
}

// text is a message of a rank.
func text(n int, salt byte, rank int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(i)*7 + byte(i>>8) + byte(i>>16)*3 + salt + byte(rank)*101
	}
	return b
}
