package main

import (
	"os"
	"strconv"
	"testing"

	"github.com/purerdma/purerdma/bench/pair"
	"github.com/purerdma/purerdma/gpu"
	"github.com/purerdma/purerdma/gpu/gputest"
	"github.com/purerdma/purerdma/gpu/kernels/kernelstest"
	"github.com/purerdma/purerdma/internal/leaktest"
)

// gpusVariable tells other processes how many GPUs the test's machine has.
const gpusVariable = "PURERDMA_GPUPAIRS_GPUS"

// TestMain is the other ranks' processes too.
func TestMain(m *testing.M) {
	if pair.Second() {
		n, err := strconv.Atoi(os.Getenv(gpusVariable))
		if err != nil {
			os.Exit(second(nil))
		}
		d := machine(n, nil)
		code := second(d)
		if len(d.Left()) > 0 {
			code = 3
		}
		os.Exit(code)
	}
	leaktest.Main(m)
}

func machine(gpus int, attributes map[gpu.Attribute]int) *gputest.Driver {
	return gputest.New(gputest.Config{Devices: make([]gpu.DeviceInfo, gpus), Attributes: attributes, Kernels: kernelstest.Kernels()})
}
