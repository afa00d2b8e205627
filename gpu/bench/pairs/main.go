//go:build linux

// Command pairs runs P2P between all GPUs of a machine: ranks in one process and in several, by every way in which memory is shared
// (DIRECT, CUMEM, legacy IPC, and INTERMEDIATE where NVLink joins two GPUs over a third), sender and receiver moving the data, messages
// checked byte by byte, each ordered pair alone and all at once, by kernels and by copy engines. NVLink's counters before and after tell
// whether it was NVLink that carried them. With NCCL's library the same work goes through its send and receive, sample by sample in turn.
//
//	go build -o bin/gpupairs ./gpu/bench/pairs    # with cgo it asks NVML
//	bin/gpupairs [--json] [--nccl PATH/libnccl.so.2] [--samples 5] [--ways DIRECT,CUMEM,IPC] [--ranks 2,4,8]
//
// A GPU that is alone is shared by two ranks. In two processes those take turns on it without MPS, so their kernels do not meet.
package main

import (
	"os"

	"github.com/purerdma/purerdma/bench/pair"
	_ "github.com/purerdma/purerdma/gpu/nvidia"
)

func main() {
	if pair.Second() {
		os.Exit(second(nil))
	}
	os.Exit((&tool{}).command().Main(os.Args[1:], os.Stdout, os.Stderr))
}
