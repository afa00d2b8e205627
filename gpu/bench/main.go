//go:build linux

// Command bench measures how fast data moves between two ends on one GPU: by copy engines and by kernels, in one process and
// between two, between the processor and kernels, and over a network that does not reach the GPU's memory, each beside what the same work costs by the driver's own copy, in
// plain CUDA C++ or without the GPU in the same run.
//
//	go build -o bin/gpubench ./gpu/bench      # runs on any machine with the same kind of processor and an NVIDIA driver
//	bin/gpubench [--json] [--device 0] [--samples 7] [--limits PATH]
//
// The folder's script run builds the limits in C++ where there is nvcc, runs the tests for GPUs, and measures with and without MPS. Two
// processes on one GPU take turns without MPS, so kernels that wait for each other are measured under MPS only.
package main

import (
	"os"

	"github.com/purerdma/purerdma/bench/pair"
	_ "github.com/purerdma/purerdma/gpu/nvidia"
)

func main() {
	if pair.Second() {
		os.Exit(second())
	}
	os.Exit((&tool{}).command().Main(os.Args[1:], os.Stdout, os.Stderr))
}
