//go:build linux

package shmtransport_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/purerdma/purerdma/shmtransport"
	"github.com/purerdma/purerdma/socketboot/bootstrap"
	"github.com/purerdma/purerdma/transport"
	"github.com/purerdma/purerdma/transport/driver"
)

// Package transport makes a mesh of four ranks over SHM, two channels each way, and messages go over every ring.
func TestJob(t *testing.T) {
	const size, channels = 4, 2
	jobs := bootstrap.InMemory(size, nil)
	var all sync.WaitGroup
	for rank, job := range jobs {
		all.Go(func() {
			defer job.Close()
			if err := runRank(t.Context(), job, rank, size, channels); err != nil {
				t.Errorf("rank %d: %v", rank, err)
			}
		})
	}
	all.Wait()
}

func runRank(ctx context.Context, job bootstrap.Job, rank, size, channels int) (err error) {
	shm := shmtransport.New(shmtransport.Config{})
	defer func() { err = errors.Join(err, shm.Close()) }()
	variables := transport.Variables{Buffers: [driver.Protocols]int{driver.Simple: 64 << 10}}
	comm, err := transport.New(ctx, transport.Config{Job: job, Channels: channels, Transports: []transport.Transport{shm}, Variables: &variables})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, comm.Close()) }()
	if err := comm.Connect(ctx, transport.Mesh(rank, size, channels)); err != nil {
		return err
	}
	for peer := range size {
		for channel := range channels {
			if peer == rank {
				continue
			}
			out := transport.End{Peer: peer, Channel: channel, ConnIndex: 1, Send: true}
			c := comm.Connector(out)
			if choice, ok := comm.Why(out); !ok || choice.Transport != "SHM" {
				return fmt.Errorf("%v: %v", out, choice)
			}
			ring, in := c.(driver.Ringer).Ring()
			if ring == nil || in != nil {
				return fmt.Errorf("%v: ring %v, %v", out, ring, in)
			}
			if ok, err := ring.TrySend(message(rank, peer, channel)); !ok || err != nil {
				return fmt.Errorf("%v: %v, %w", out, ok, err)
			}
		}
	}
	buf := make([]byte, 1000)
	for peer := range size {
		for channel := range channels {
			if peer == rank {
				continue
			}
			in := transport.End{Peer: peer, Channel: channel, ConnIndex: 1}
			c := comm.Connector(in)
			if out, ring := c.(driver.Ringer).Ring(); ring == nil || out != nil {
				return fmt.Errorf("%v: ring %v, %v", in, out, ring)
			}
			n, err := c.(*shmtransport.Connector).Receiver().Recv(ctx, buf)
			if err != nil || !bytes.Equal(buf[:n], message(peer, rank, channel)) {
				return fmt.Errorf("%v: %q, %w", in, buf[:n], err)
			}
			if n := c.Conn().Buffers[driver.Simple].Len(); n != 64<<10 {
				return fmt.Errorf("SIMPLE buffer of %d bytes", n)
			}
		}
	}
	return job.Barrier(ctx) // nobody closes before all have received
}

func message(from, to, channel int) []byte {
	return []byte(strings.Repeat(fmt.Sprintf("%d to %d on %d. ", from, to, channel), 20))
}
