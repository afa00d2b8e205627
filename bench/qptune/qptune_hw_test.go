//go:build hw && unix

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/purerdma/purerdma/bench/tune"
	"github.com/purerdma/purerdma/ibverbs"
)

// A tiny sweep between two processes: across devices if there are two, and on one chosen by chance.
func TestRealDevices(t *testing.T) {
	list, err := tune.Candidates(0)
	if errors.Is(err, ibverbs.ErrNoDevice) {
		t.Skip("there is no usable RDMA device: ", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	seed := rand.Uint64()
	r := rand.New(rand.NewPCG(seed, 0))
	a, b, _ := tune.Pair(list)
	one := list[r.IntN(len(list))]
	t.Logf("seed %d: %s to %s, and %s alone", seed, a.Name, b.Name, one.Name)
	for _, devices := range []string{a.Name + "," + b.Name, one.Name} {
		t.Run(devices, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
			defer cancel()
			cmd := exec.CommandContext(ctx, os.Args[0], "--json", "-d", devices, "-q", "1,2", "-s", "8,5000,64K", "-n", "4", "--rounds", "2",
				"--budget", "40s", "--seed", fmt.Sprint(seed>>11))
			cmd.Env = append(os.Environ(), asCommand+"="+realDevices)
			var stderr strings.Builder
			cmd.Stderr = &stderr
			out, err := cmd.Output()
			if err != nil {
				t.Fatalf("%v\n%s", err, stderr.String())
			}
			var d document
			if err := json.Unmarshal(out, &d); err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			if d.Status != "ok" || len(d.Connections) != 3 || len(d.Results) != 9 || d.Recommendation == nil || d.Rounds < 1 {
				t.Errorf("%s", out)
			}
			for _, r := range d.Results {
				if !(r.Bandwidth > 0) || !(r.P50 > 0) || r.P99 < r.P50 {
					t.Errorf("%+v", r)
				}
			}
			for _, c := range d.Connections {
				for _, p := range c.Paths {
					t.Logf("%d QPs, split %v: %s/%d %s > %s, QP %#x > %#x, UDP source port %d", c.QPs, c.Split, p.Device, p.Port, p.LocalGID, p.RemoteGID,
						p.LocalQPN, p.RemoteQPN, p.UDPSourcePort)
				}
			}
		})
	}
}
