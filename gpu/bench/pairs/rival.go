//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/purerdma/purerdma/gpu"
	"github.com/purerdma/purerdma/gpu/bench/nccl"
)

// rival is NCCL at one rank. It refuses two ranks on one GPU: there each is alone and sends to itself. nil is no rival.
type rival struct {
	g    gpu.Context
	lib  *nccl.Library
	comm *nccl.Comm
	self bool
}

// openRival meets the other ranks in NCCL. It decides for itself whether to read or to write, so it is asked in one mode only.
func (r *rank) openRival() error {
	if r.Library == "" || r.Scenario.Read {
		return nil
	}
	lib, err := nccl.Open(r.Library)
	if err != nil {
		return err
	}
	if r.NCCL, err = lib.Version(); err != nil {
		return err
	}
	v := &rival{g: r.g, lib: lib, self: r.Scenario.shared() && (!r.Hosts || !r.Scenario.Way.Processes)}
	if !v.self && r.Hosts {
		if err := lib.Setenv("NCCL_HOSTID", fmt.Sprintf("rank%d", r.me)); err != nil {
			return err
		}
	}
	id, err := lib.NewID()
	if err != nil {
		return err
	}
	me, n := 0, 1
	if !v.self {
		ids, err := r.job.AllGather(context.Background(), id[:])
		if err != nil {
			return err
		}
		if len(ids[0]) != len(id) {
			return fmt.Errorf("an id of %d bytes came", len(ids[0]))
		}
		me, n, id = r.me, r.n, [nccl.IDSize]byte(ids[0])
	}
	comms := make(chan *nccl.Comm, 1)
	err = endsWithin(patience, r.job, "ncclCommInitRank", func() error {
		return r.g.Do(func(gpu.Context) error {
			comm, err := lib.Init(id, me, n)
			if err == nil {
				comms <- comm
			}
			return err
		})
	})
	if err == nil {
		v.comm, r.rival = <-comms, v
	}
	return err
}

// errStuck says that a call into NCCL goes on: the GPU is in its hands, and cannot be closed, until the process ends.
var errStuck = errors.New("the call goes on")

// endsWithin does f, a call into NCCL in which a rank waits for the others, which nothing interrupts. When it has not ended after so long,
// or when the job has, the call is left to itself, and the error is an errStuck.
func endsWithin(limit time.Duration, job interface {
	Done() <-chan struct{}
	Err() error
}, call string, f func() error) error {
	ended := make(chan error, 1)
	go func() { ended <- f() }()
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case err := <-ended:
		return err
	case <-job.Done():
		return fmt.Errorf("%s has not ended: %w; %w", call, errStuck, job.Err())
	case <-timer.C:
		return fmt.Errorf("%s has not ended after %v: %w; NCCL_DEBUG=INFO tells for whom NCCL waits, NCCL_SOCKET_IFNAME by which interface", call, limit, errStuck)
	}
}

// timedWithin is endsWithin of what measures itself, so that the hand-over is in no time.
func timedWithin(limit time.Duration, job interface {
	Done() <-chan struct{}
	Err() error
}, call string, f func() (time.Duration, error)) (time.Duration, error) {
	times := make(chan time.Duration, 1)
	err := endsWithin(limit, job, call, func() error {
		took, err := f()
		times <- took
		return err
	})
	if err != nil {
		return 0, err
	}
	return <-times, nil
}

// trial is so many messages by NCCL, nil without it.
func (v *rival) trial(r *rank, from, to, n, count int) *trial {
	if v == nil {
		return nil
	}
	run := func(f func() error) func(func() error) error {
		return func(ready func() error) error {
			return v.g.Do(func(g gpu.Context) error {
				if err := ready(); err != nil {
					return err
				}
				for range count {
					if err := f(); err != nil {
						return err
					}
				}
				return g.Synchronize(r.a)
			})
		}
	}
	if v.self {
		return &trial{byNCCL: true, send: func(ready func() error) error { return ready() }, recv: run(func() error {
			return v.lib.Group(func() error { return v.both(r, 0, r.dst, n) })
		})}
	}
	return &trial{byNCCL: true, send: run(func() error { r.sent(to, n); return v.comm.Send(r.src, n, to, r.a) }),
		recv: run(func() error { return v.comm.Recv(r.dst, n, from, r.a) })}
}

// both sends to a rank and receives from it.
func (v *rival) both(r *rank, peer int, dst gpu.Ptr, n int) error {
	if err := v.comm.Send(r.src, n, peer, r.a); err != nil {
		return err
	}
	return v.comm.Recv(dst, n, peer, r.a)
}

// together is all pairs at once by NCCL, nil without it.
func (v *rival) together(r *rank) func(n, count int) (time.Duration, error) {
	if v == nil || v.self {
		return nil
	}
	move := took(func(n, count int) error {
		return v.g.Do(func(g gpu.Context) error {
			for range count {
				err := v.lib.Group(func() error {
					for peer, i := range r.others() {
						r.sent(peer, n)
						if err := v.both(r, peer, r.dst+ptr(i*n), n); err != nil {
							return err
						}
					}
					return nil
				})
				if err != nil {
					return err
				}
			}
			return g.Synchronize(r.a)
		})
	})
	return func(n, count int) (time.Duration, error) {
		return timedWithin(patience, r.job, "NCCL's sends, receives and cuStreamSynchronize", func() (time.Duration, error) { return move(n, count) })
	}
}

// closeRival ends NCCL, where it is.
func (r *rank) closeRival() error {
	v := r.rival
	if v == nil {
		return nil
	}
	return endsWithin(patience, r.job, "ncclCommDestroy", func() error { return v.g.Do(func(gpu.Context) error { return v.comm.Close() }) })
}
