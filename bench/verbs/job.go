package main

import (
	"fmt"

	"github.com/purerdma/purerdma/bench/control"
	"github.com/purerdma/purerdma/bench/report"
	"github.com/purerdma/purerdma/qp"
)

// test is what is measured.
type test string

const (
	bandwidth test = "bandwidth"
	latency   test = "latency"
)

// job is one measurement, the same for both programs.
type job struct {
	Test     test
	Size     int // bytes of a write
	Iters    int
	Depth    int // writes in flight
	CQMod    int // every how manieth write is signaled
	Timeout  int // for an acknowledgement: 4.096 µs × 2^Timeout
	GIDIndex int // at the end of this process
}

// inline is up to which size writes of the latency test are copied into the request, as ib_write_lat has it.
const inline = 220

// hello is the first line between the two ends.
func hello() control.Hello {
	return control.Hello{Protocol: "purerdma-verbs", Version: 1, Build: report.Build()}
}

// place is what an end tells the other: its queue pair, and the memory to write into.
type place struct {
	QP   qp.Info
	Addr uint64
	RKey uint32
	Len  int
}

func (p place) check(j job) error {
	if p.Len < j.Size || p.RKey == 0 || p.Addr == 0 {
		return fmt.Errorf("memory of %d bytes at %#x: %w", p.Len, p.Addr, control.ErrProtocol)
	}
	return nil
}

// The messages between the two ends: each tells its place, then that it is connected; the end that measures ends with done, and the
// other one says what it found in its memory.
const (
	sayPlace     = "place"
	sayConnected = "connected"
	sayDone      = "done"
	sayChecked   = "checked"
)
