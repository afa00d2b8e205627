//go:build linux

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"sync"

	"github.com/purerdma/purerdma/bench/pair"
	"github.com/purerdma/purerdma/gpu"
	"github.com/purerdma/purerdma/socketboot"
	"github.com/purerdma/purerdma/socketboot/bootstrap"
)

// orders is what a rank gets that is a process of its own.
type orders struct {
	ID   string // of the job
	Rank int
	Page string
	Plan plan
}

var local = socketboot.Net{Bind: netip.MustParseAddrPort("127.0.0.1:0")}

// play runs a scenario, rank 0 in this process, the others here or each in its own.
func play(ctx context.Context, d gpu.Driver, p plan, stderr io.Writer) (results []result, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	n := len(p.Scenario.Devices)
	pg, err := newPage(n)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, pg.Close()) }()
	if p.Scenario.Way.Processes {
		return playProcesses(ctx, d, p, pg, stderr)
	}
	errs := make([]error, n)
	var all sync.WaitGroup
	for rank, job := range bootstrap.InMemory(n, nil) {
		all.Go(func() {
			got, err := member(ctx, d, job, p, pg)
			if rank == 0 {
				results = got
			}
			errs[rank] = errors.Join(err, job.Close())
		})
	}
	all.Wait()
	return results, errors.Join(errs...)
}

func playProcesses(ctx context.Context, d gpu.Driver, p plan, pg *page, stderr io.Writer) (results []result, err error) {
	root, err := bootstrap.NewRoot(ctx, bootstrap.RootConfig{Net: local})
	if err != nil {
		return nil, err
	}
	closers := []func() error{root.Close}
	o := orders{ID: root.ID().String(), Page: pg.path(), Plan: p}
	for o.Rank = 1; o.Rank < len(p.Scenario.Devices) && err == nil; o.Rank++ {
		var nc net.Conn
		var wait func() error
		if nc, wait, err = pair.Start(o, stderr); err == nil {
			closers = append(closers, wait, nc.Close)
		}
	}
	if o.Rank = 0; err == nil {
		results, err = joined(ctx, d, o, pg)
	}
	for i := len(closers) - 1; i >= 0; i-- {
		err = errors.Join(err, closers[i]())
	}
	return results, err
}

// second is a rank in a process of its own, with the GPUs of a driver or, if it is nil, of the first that has any.
func second(d gpu.Driver) int {
	var o orders
	nc, err := pair.Join(&o)
	if err == nil {
		err = errors.Join(other(nc, d, o), nc.Close())
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "rank %d: %v\n", o.Rank, err)
		return 1
	}
	return 0
}

// other ends early when the first process closes the socket.
func other(nc net.Conn, d gpu.Driver, o orders) error {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go func() {
		_, _ = nc.Read(make([]byte, 1))
		cancel()
	}()
	var err error
	if d == nil {
		if d, err = driverWithGPUs(); err != nil {
			return err
		}
	}
	pg, err := openPage(o.Page, len(o.Plan.Scenario.Devices))
	if err != nil {
		return err
	}
	_, err = joined(ctx, d, o, pg)
	return errors.Join(err, pg.Close())
}

func joined(ctx context.Context, d gpu.Driver, o orders, pg *page) ([]result, error) {
	id, err := bootstrap.ParseID(o.ID)
	if err != nil {
		return nil, err
	}
	job, err := bootstrap.Join(ctx, bootstrap.Config{ID: id, Rank: o.Rank, Size: len(o.Plan.Scenario.Devices), Net: local})
	if err != nil {
		return nil, err
	}
	results, err := member(ctx, d, job, o.Plan, pg)
	return results, errors.Join(err, job.Close())
}

// member plays one rank and gives what all ranks have found.
func member(ctx context.Context, d gpu.Driver, job bootstrap.Job, p plan, pg *page) (results []result, err error) {
	r, err := newRank(ctx, d, job, p, pg)
	if err != nil {
		job.Abort(err)
		return nil, err
	}
	if err = r.play(); err != nil {
		job.Abort(err)
		if errors.Is(err, errStuck) {
			return nil, err // to close the GPU would wait for the call
		}
		return nil, errors.Join(err, r.Close())
	}
	results, err = gather(ctx, job, r.result)
	return results, errors.Join(err, r.Close())
}

func gather(ctx context.Context, job bootstrap.Job, mine result) (results []result, err error) {
	b, err := json.Marshal(mine)
	if err != nil {
		return nil, err
	}
	all, err := job.AllGather(ctx, b)
	if err != nil {
		return nil, err
	}
	results = make([]result, len(all))
	for i := range all {
		if err := json.Unmarshal(all[i], &results[i]); err != nil {
			return nil, fmt.Errorf("what rank %d has found: %w", i, err)
		}
	}
	return results, nil
}

// driverWithGPUs is the first driver that has any.
func driverWithGPUs() (gpu.Driver, error) {
	errs := []error{errors.New("no GPU to measure")}
	for _, d := range gpu.Drivers() {
		devices, err := d.Devices()
		if err == nil && len(devices) > 0 {
			return d, nil
		}
		errs = append(errs, err)
	}
	return nil, errors.Join(errs...)
}
