//go:build linux

package main

import (
	"strings"
	"testing"

	"github.com/purerdma/purerdma/ibverbs"
)

// Where no RDMA device can be opened, ranks of one host still have shared memory, and ranks of two are told what each lacks.
func TestNoDevice(t *testing.T) {
	devices, _ := ibverbs.Devices()
	for _, d := range devices {
		if d.Info().Driver != "softroce" {
			t.Skipf("this machine has %s", d.Info().Name)
		}
	}
	t.Setenv("PURERDMA_SOFTROCE_ADDRS", "192.0.2.222") // for examples; nobody has it
	quick := []string{"-n", "2", "--min", "8", "--max", "8", "--iters", "1", "--warmup", "0", "--rounds", "1"}
	for _, c := range []struct {
		args []string
		want string // in the error; "" = it works
	}{
		{nil, ""},
		{[]string{"-t", overSHM}, ""},
		{[]string{"-t", overNet}, "192.0.2.222"},
		{[]string{"--hosts", "2"}, "192.0.2.222"},
		{[]string{"-d", "soft0"}, "192.0.2.222"}, // who names a device wants it
	} {
		t.Run(strings.Join(c.args, " "), func(t *testing.T) {
			d, stderr, err := command(t, testLimit, append(c.args, quick...)...)
			if c.want != "" {
				if err == nil || d.Error == nil || !strings.Contains(*d.Error+stderr, c.want) {
					t.Errorf("%v, %+v\n%s", err, d, stderr)
				}
				return
			}
			if err != nil || d.Links["SHM"] != 2 {
				t.Errorf("%v, %v\n%s", err, d.Links, stderr)
			}
		})
	}
}
