// Command verbs measures purerdma's verbs against perftest, the C programs that everybody compares with.
//
// Two tests: RDMA_WRITE bandwidth against ib_write_bw, and the latency of small writes against ib_write_lat. Both programs measure
// the same thing in the same way: two processes, one device or two, one queue pair, the same depth and signaling, the same poll
// loops. They run in turn, and what counts is the ratio of two neighbours: on a shared machine absolute figures drift by factors,
// ratios of neighbours much less. The result is the median of the ratios with the interval in which it lies.
//
// The script lab beside this file runs it in the lab's virtual machine. The targets (0.95 of the bandwidth, 1.35 times the latency)
// are told, not enforced: the exit code is 0 when everything ran, whatever came out.
//
// # Waiting
//
// perftest spins. So do the loops here, but every 256th look that finds nothing yields (runtime.Gosched): a goroutine that never
// does keeps its thread for 10 ms, and timers and the network poller of this process wait that long. More often would cost, since a
// yield wakes another thread to look for work. In the lab 16, 256 and 8192 could not be told apart.
//
// # Reading the figures
//
// On emulated Soft-RoCE the kernel moves the packets on the same two processors on which both programs spin. When it leaves that to
// its own thread (ksoftirqd) it competes with them: the 99th percentile is then milliseconds for either program, and says when that
// happened rather than who is faster. Bandwidth went with the number of retransmissions (hw_counters' completer_retry_err) in most
// pairs that were looked at, so a longer time-out than perftest's 67 ms is the default for both. Where other work shares the machine,
// single pairs differ by half; more --pairs and a quiet machine narrow the interval.
package main

import (
	"os"

	"github.com/purerdma/purerdma/bench/pair"
)

func main() {
	if pair.Second() {
		os.Exit(second())
	}
	os.Exit((&tool{}).command().Main(os.Args[1:], os.Stdout, os.Stderr))
}
