package shmtransport_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"sync"
	"testing"

	"github.com/purerdma/purerdma/gpu"
	"github.com/purerdma/purerdma/gpu/gputest"
	"github.com/purerdma/purerdma/gpu/kernels"
	"github.com/purerdma/purerdma/gpu/kernels/kernelstest"
	"github.com/purerdma/purerdma/p2ptransport"
	"github.com/purerdma/purerdma/shmtransport"
	"github.com/purerdma/purerdma/socketboot/bootstrap"
	"github.com/purerdma/purerdma/transport"
	"github.com/purerdma/purerdma/transport/driver"
)

// Two ranks whose GPUs do not reach each other's memory meet in the host's: their kernels move messages through it by SIMPLE and by LL.
func TestGPUsWithoutPeerAccess(t *testing.T) {
	machine := gputest.New(gputest.Config{Devices: make([]gpu.DeviceInfo, 2), Peers: func(int, int) bool { return false }, Kernels: kernelstest.Kernels()})
	jobs := bootstrap.InMemory(2, nil)
	var all sync.WaitGroup
	for rank, job := range jobs {
		all.Go(func() {
			defer job.Close()
			if err := gpuRank(t.Context(), job, machine, rank); err != nil {
				t.Errorf("rank %d: %v", rank, err)
			}
		})
	}
	all.Wait()
	if left := machine.Left(); len(left) > 0 {
		t.Errorf("left on the GPUs: %v", left)
	}
}

func gpuRank(ctx context.Context, job bootstrap.Job, machine *gputest.Driver, rank int) (err error) {
	g, err := machine.Open(rank)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, g.Close()) }()
	p2p, err := p2ptransport.New(p2ptransport.Config{Driver: machine, GPU: g, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, p2p.Close()) }()
	shm := shmtransport.New(shmtransport.Config{GPU: g})
	defer func() { err = errors.Join(err, shm.Close()) }()
	variables := transport.Variables{Buffers: [driver.Protocols]int{driver.LL: 32 << 10, driver.Simple: 64 << 10}}
	comm, err := transport.New(ctx, transport.Config{Job: job, Channels: 1, Transports: []transport.Transport{p2p, shm}, Variables: &variables})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, comm.Close()) }()
	if err := comm.Connect(ctx, transport.Mesh(rank, 2, 1)); err != nil {
		return err
	}
	out, in := transport.End{Peer: 1 - rank, ConnIndex: 1, Send: true}, transport.End{Peer: 1 - rank, ConnIndex: 1}
	why, _ := comm.Why(out)
	if why.Transport != "SHM" || !strings.Contains(why.String(), "P2P: the GPUs do not reach each other's memory") {
		return fmt.Errorf("connected by %v", why)
	}
	if err := exchange(g, comm.Connector(out).Conn().GPU, comm.Connector(in).Conn().GPU, rank); err != nil {
		return err
	}
	return job.Barrier(ctx) // nobody closes before both have received
}

// exchange sends messages to the other rank and takes its own, side by side.
func exchange(g gpu.Context, out, in *driver.GPUConn, rank int) (err error) {
	const most = 300_000
	set, err := kernels.Load(g)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, set.Close()) }()
	var streams [2]gpu.Stream
	for i := range streams {
		if streams[i], err = g.NewStream(); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, g.CloseStream(streams[i])) }()
	}
	data, err := g.Alloc(2*most + 4096)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, g.Free(data)) }()
	abort := data + 2*most
	if err := g.WriteTo(abort, make([]byte, 8)); err != nil {
		return err
	}
	step := uint64(0)
	for i, n := range []int{0, 1, 7777, most, 64 << 10} {
		for _, p := range []driver.Protocol{driver.Simple, driver.LL} {
			send, recv, payload := set.SendSimple, set.RecvSimple, out.Steps[p]
			if p == driver.LL {
				send, recv, payload = set.SendLL, set.RecvLL, payload/2
			}
			if err := g.WriteTo(data, numbered(n, i, rank)); err != nil {
				return err
			}
			channel := func(c *driver.GPUConn, at gpu.Ptr) []kernels.Channel {
				return []kernels.Channel{{Data: at, Bytes: n, Buffer: c.Buffers[p], Head: c.Head, Tail: c.Tail, First: step, Step: c.Steps[p]}}
			}
			err := errors.Join(send(streams[0], abort, channel(out, data)), recv(streams[1], abort, channel(in, data+most)),
				g.Synchronize(streams[0]), g.Synchronize(streams[1]))
			if err != nil {
				return err
			}
			step += kernels.Steps(n, payload)
			got := make([]byte, n)
			if err := g.ReadFrom(got, data+most); err != nil || !bytes.Equal(got, numbered(n, i, 1-rank)) {
				return fmt.Errorf("%d bytes by %v differ, %w", n, p, err)
			}
		}
	}
	return nil
}

func numbered(n, message, rank int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(i*7 + i>>8 + 31*message + 101*rank)
	}
	return b
}

// A GPU that refuses the memory fails the connection at both ranks, and nothing is left.
func TestGPURefusesSharedMemory(t *testing.T) {
	refused := &gpu.Error{Call: "cuMemHostRegister", Name: "CUDA_ERROR_NOT_PERMITTED", Code: 800, Cause: gpu.ErrPermission}
	for _, call := range []string{"RegisterHost", "UnregisterHost"} {
		machine := gputest.New(gputest.Config{Kernels: kernelstest.Kernels()})
		jobs := bootstrap.InMemory(2, nil)
		errs := make([]error, 2)
		var all sync.WaitGroup
		for rank, job := range jobs {
			all.Go(func() {
				defer job.Close()
				errs[rank] = connectOnly(t.Context(), job, machine, rank, func() { machine.Fail(call, 1, refused) })
			})
		}
		all.Wait()
		if err := errors.Join(errs...); !errors.Is(err, gpu.ErrPermission) || call == "RegisterHost" && !strings.Contains(err.Error(), "SHM, ") {
			t.Errorf("%s: %v", call, err)
		}
		// What the driver did not let go ends with its context.
		if left := machine.Left(); len(left) > 0 {
			t.Errorf("%s: left on the GPUs: %v", call, left)
		}
	}
}

func connectOnly(ctx context.Context, job bootstrap.Job, machine *gputest.Driver, rank int, before func()) (err error) {
	g, err := machine.Open(0)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, g.Close()) }()
	shm := shmtransport.New(shmtransport.Config{GPU: g})
	defer func() { err = errors.Join(err, shm.Close()) }()
	variables := transport.Variables{Buffers: [driver.Protocols]int{driver.Simple: 64 << 10}}
	comm, err := transport.New(ctx, transport.Config{Job: job, Channels: 1, Transports: []transport.Transport{shm}, Variables: &variables,
		Log: slog.New(slog.NewTextHandler(io.Discard, nil))})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, comm.Close()) }()
	if rank == 0 {
		before()
	}
	return comm.Connect(ctx, transport.Mesh(rank, 2, 1))
}
