//go:build linux

package main

import (
	"context"
	"fmt"

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
	err = r.g.Do(func(gpu.Context) error {
		v.comm, err = lib.Init(id, me, n)
		return err
	})
	if err == nil {
		r.rival = v
	}
	return err
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
		return &trial{send: func(ready func() error) error { return ready() }, recv: run(func() error {
			return v.lib.Group(func() error { return v.both(r, 0, r.dst, n) })
		})}
	}
	return &trial{send: run(func() error { r.sent(to, n); return v.comm.Send(r.src, n, to, r.a) }),
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
func (v *rival) together(r *rank) func(n, count int) error {
	if v == nil || v.self {
		return nil
	}
	return func(n, count int) error {
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
	}
}

// Close ends it, where it is.
func (v *rival) Close() error {
	if v == nil {
		return nil
	}
	return v.g.Do(func(gpu.Context) error { return v.comm.Close() })
}
