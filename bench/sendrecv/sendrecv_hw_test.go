//go:build hw && linux

package main

import (
	"errors"
	"fmt"
	"strconv"
	"testing"

	"github.com/purerdma/purerdma/bench/tune"
	"github.com/purerdma/purerdma/ibverbs"
)

// Two to four ranks over one or two devices, with buffers and messages that suit a slow one.
func TestRealDevices(t *testing.T) {
	list, err := tune.Candidates(0)
	if errors.Is(err, ibverbs.ErrNoDevice) {
		t.Skip("there is no usable RDMA device: ", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	a, b, why := tune.Pair(list)
	t.Log(why)
	t.Setenv("NCCL_BUFFSIZE", "262144")
	for _, c := range []struct {
		ranks, channels int
		args            []string
	}{
		{2, 2, []string{"-p", random, "--max", "256K", "--rounds", "2", "--messages", "3"}},
		{3, 1, []string{"-p", ring, "--min", "1", "--max", "256K", "--factor", "64", "--iters", "2", "--warmup", "1", "--rounds", "1"}},
		{4, 2, []string{"-p", random, "--max", "256K", "--rounds", "1"}},
	} {
		t.Run(fmt.Sprintf("%d ranks, %d channels", c.ranks, c.channels), func(t *testing.T) {
			d, stderr, err := command(t, testLimit, append(c.args, "-n", strconv.Itoa(c.ranks), "-c", strconv.Itoa(c.channels), "-t", overNet, "-d", a.Name+","+b.Name)...)
			if err != nil {
				t.Fatalf("%v\n%s", err, stderr)
			}
			if d.Wrong != 0 || d.Links["NET"] != c.ranks*(c.ranks-1) || d.Mesh == nil && len(d.Rows) == 0 {
				t.Errorf("%+v", d)
			}
			if d.Mesh != nil {
				t.Logf("seed %d: %+v", d.Seed, *d.Mesh)
			}
			for _, r := range d.Rows {
				t.Logf("%d bytes: %v s", r.Size, r.Time)
			}
		})
	}
}
