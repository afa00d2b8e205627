package hostend

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/purerdma/purerdma/gpu"
	"github.com/purerdma/purerdma/gpu/gputest"
	"github.com/purerdma/purerdma/gpu/kernels"
	"github.com/purerdma/purerdma/gpu/kernels/kernelstest"
	"github.com/purerdma/purerdma/shmtransport"
	"github.com/purerdma/purerdma/socketboot"
	"github.com/purerdma/purerdma/socketboot/bootstrap"
	"github.com/purerdma/purerdma/transport"
	"github.com/purerdma/purerdma/transport/driver"
)

// orders is what rank 1 gets.
type orders struct {
	ID    string // of the job
	Dir   string // of the files, "" to share memory by socket
	Dies  bool   // after a message
	Sizes []int  // of the messages
}

// patient bounds a job, which takes a second.
const patient = 2 * time.Minute

var local = socketboot.Net{Bind: netip.MustParseAddrPort("127.0.0.1:0")}

// shm is SHM by one of its two ways.
type shm struct {
	*shmtransport.Transport
	files bool
}

func (t shm) Describe(self *driver.PeerInfo) error {
	err := t.Transport.Describe(self)
	if t.files {
		self.Socket = ""
	}
	return err
}

// withRank does f with a rank that is connected to the other by SHM, both ways; it has the GPU g, or is the processor's.
func withRank(ctx context.Context, o orders, rank int, g gpu.Context, f func(job bootstrap.Job, out, in driver.Connector) error) (err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("rank %d: %w", rank, err)
		}
	}()
	id, err := bootstrap.ParseID(o.ID)
	if err != nil {
		return err
	}
	job, err := bootstrap.Join(ctx, bootstrap.Config{ID: id, Rank: rank, Size: 2, Net: local})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, job.Close()) }()
	way := shm{shmtransport.New(shmtransport.Config{Dir: o.Dir, GPU: g}), o.Dir != ""}
	defer func() { err = errors.Join(err, way.Close()) }()
	self, err := transport.Identify(transport.World{}, "")
	if err != nil {
		return err
	}
	if g != nil {
		self.ComputeCap = 90
	}
	comm, err := transport.New(ctx, transport.Config{Job: job, Channels: 1, Self: self, Transports: []transport.Transport{way},
		Variables: &transport.Variables{Buffers: [driver.Protocols]int{driver.LL: llSize, driver.Simple: bufSize}}, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, comm.Close()) }()
	if err := comm.Connect(ctx, transport.Mesh(rank, 2, 1)); err != nil {
		return err
	}
	end := func(send bool) driver.Connector {
		return comm.Connector(transport.End{Peer: 1 - rank, ConnIndex: 1, Send: send})
	}
	return f(job, end(true), end(false))
}

// Messages of all sizes go from this process over SHM to the kernels of the other's GPU and back, by either protocol after the other.
func TestOverSHM(t *testing.T) {
	for name, files := range map[string]bool{"memfd": false, "file": true} {
		t.Run(name, func(t *testing.T) {
			err, second := twoRanks(t, orders{Dir: map[bool]string{true: t.TempDir()}[files], Sizes: sizes()}, func(ctx context.Context, job bootstrap.Job, s *Sender, r *Receiver) error {
				for i, n := range sizes() {
					for _, p := range []driver.Protocol{driver.Simple, driver.LL} {
						want, got := text(n, i), make([]byte, n)
						if err := errors.Join(s.Send(ctx, p, want), r.Recv(ctx, p, got), same(got, want)); err != nil {
							return fmt.Errorf("%d bytes by %v: %w", n, p, err)
						}
					}
				}
				return job.Barrier(ctx)
			})
			must(t, errors.Join(err, second))
		})
	}
}

// A wait for a GPU whose process is killed ends with that.
func TestPeerKilled(t *testing.T) {
	for _, send := range []bool{true, false} {
		var got error
		first, second := twoRanks(t, orders{Dies: true}, func(ctx context.Context, _ bootstrap.Job, s *Sender, r *Receiver) error {
			if err := s.Send(ctx, driver.LL, nil); err != nil {
				return err
			}
			for b := make([]byte, bufSize); got == nil; {
				if send {
					got = s.Send(ctx, driver.Simple, b)
				} else {
					got = r.Recv(ctx, driver.LL, b)
				}
			}
			return got
		})
		if !errors.Is(got, shmtransport.ErrPeerGone) {
			t.Errorf("sends: %v: %v", send, first)
		}
		if second == nil || !strings.Contains(second.Error(), "signal: killed") {
			t.Errorf("sends: %v: rank 1 was not killed: %v", send, second)
		}
	}
}

// twoRanks does f as rank 0, the processor's, and gives what became of both ranks.
func twoRanks(t *testing.T, o orders, f func(context.Context, bootstrap.Job, *Sender, *Receiver) error) (first, second error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patient)
	defer cancel()
	root, err := bootstrap.NewRoot(ctx, bootstrap.RootConfig{Net: local})
	must(t, err)
	defer func() { must(t, root.Close()) }()
	o.ID = root.ID().String()
	b, err := json.Marshal(o)
	must(t, err)
	cmd := exec.CommandContext(ctx, "/proc/self/exe")
	cmd.Env = append(os.Environ(), ordersVariable+"="+string(b))
	said := new(strings.Builder)
	cmd.Stderr = said
	must(t, cmd.Start())
	first = withRank(ctx, o, 0, nil, func(job bootstrap.Job, out, in driver.Connector) error {
		s, err := NewSender(out)
		if err != nil {
			return err
		}
		r, err := NewReceiver(in)
		if err != nil {
			return err
		}
		return f(ctx, job, s, r)
	})
	if first != nil && !o.Dies {
		cancel()
	}
	if second = cmd.Wait(); second != nil {
		second = fmt.Errorf("the process of rank 1: %w: %s", second, said)
	}
	return first, second
}

// Rank 1 gives every message back: kernels receive it and send it, in the memory that is mapped here.
func init() {
	other = func(text string) (err error) {
		var o orders
		if err := json.Unmarshal([]byte(text), &o); err != nil {
			return err
		}
		ctx, cancel := context.WithTimeout(context.Background(), patient)
		defer cancel()
		machine := gputest.New(gputest.Config{Kernels: kernelstest.Kernels()})
		g, err := machine.Open(0)
		if err != nil {
			return err
		}
		err = withRank(ctx, o, 1, g, func(job bootstrap.Job, out, in driver.Connector) error {
			if o.Dies { // once rank 0 is connected and waits
				r, err := NewReceiver(in)
				if err != nil {
					return err
				}
				if err := r.Recv(ctx, driver.LL, nil); err != nil {
					return err
				}
				_ = unix.Kill(os.Getpid(), unix.SIGKILL)
				select {} // until it has come
			}
			return errors.Join(echo(g, out.Conn().GPU, in.Conn().GPU, o.Sizes), job.Barrier(ctx))
		})
		err = errors.Join(err, g.Close())
		if left := machine.Left(); len(left) > 0 {
			err = errors.Join(err, fmt.Errorf("left on the GPU: %v", left))
		}
		return err
	}
}

func echo(g gpu.Context, out, in *driver.GPUConn, sizes []int) (err error) {
	set, err := kernels.Load(g)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, set.Close()) }()
	stream, err := g.NewStream()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, g.CloseStream(stream)) }()
	const most = 4 * bufSize
	data, err := g.Alloc(most + 64)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, g.Free(data)) }()
	abort := data + most
	if err := g.WriteTo(abort, make([]byte, 8)); err != nil {
		return err
	}
	step := uint64(0)
	for _, n := range sizes {
		for _, p := range []driver.Protocol{driver.Simple, driver.LL} {
			recv, send, payload := set.RecvSimple, set.SendSimple, in.Steps[p]
			if p == driver.LL {
				recv, send, payload = set.RecvLL, set.SendLL, payload/2
			}
			channel := func(c *driver.GPUConn) []kernels.Channel {
				return []kernels.Channel{{Data: data, Bytes: n, Buffer: c.Buffers[p], Head: c.Head, Tail: c.Tail, First: step, Step: c.Steps[p]}}
			}
			if err := errors.Join(recv(stream, abort, channel(in)), send(stream, abort, channel(out)), g.Synchronize(stream)); err != nil {
				return fmt.Errorf("%d bytes by %v: %w", n, p, err)
			}
			step += kernels.Steps(n, payload)
		}
	}
	return nil
}
