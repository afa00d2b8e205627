package main

import (
	"slices"
	"strings"

	"github.com/purerdma/purerdma/bench/advise"
	"github.com/purerdma/purerdma/bench/stats"
)

// mode is what one slice measures.
type mode string

const (
	write1024 mode = "write, MTU 1024"
	write4096 mode = "write, MTU 4096"
	crc1024   mode = "UDP with CRC, MTU 1024"
	crc4096   mode = "UDP with CRC, MTU 4096"
	plain1024 mode = "UDP, MTU 1024"
	plain4096 mode = "UDP, MTU 4096"

	polled    mode = "write, polling"
	waited    mode = "write, waiting"
	paused    mode = "write, after a pause"
	udpPolled mode = "UDP, polling"
	udpWaited mode = "UDP, waiting"
	udpPaused mode = "UDP, after a pause"

	oneQP  mode = "one queue pair"
	manyQP mode = "many queue pairs"
)

// mtu is the path MTU of a mode that streams.
func (m mode) mtu() int {
	switch m {
	case write1024, crc1024, plain1024:
		return 1024
	case write4096, crc4096, plain4096:
		return 4096
	}
	return 0
}

// row is a comparison: a figure of softroce over that of the reference.
type row struct {
	Group     string
	What      string
	Unit      string
	Ours, Ref mode
	Target    float64
	AtLeast   bool // else at most
}

func (r row) met(ratio float64) bool {
	if r.AtLeast {
		return ratio >= r.Target
	}
	return ratio <= r.Target
}

const (
	bandwidth = "bandwidth"
	latency   = "latency"
	scale     = "scale"
)

var rows = []row{
	{bandwidth, "1 MiB writes, MTU 1024 / UDP with CRC", "GB/s", write1024, crc1024, 0.92, true},
	{bandwidth, "1 MiB writes, MTU 1024 / UDP", "GB/s", write1024, plain1024, 0.72, true},
	{bandwidth, "1 MiB writes, MTU 4096 / UDP with CRC", "GB/s", write4096, crc4096, 0.97, true},
	{bandwidth, "1 MiB writes, MTU 4096 / UDP", "GB/s", write4096, plain4096, 0.72, true},
	{latency, "8 B, both poll / UDP", "µs", polled, udpPolled, 1.3, false},
	{latency, "8 B, both wait / UDP", "µs", waited, udpWaited, 1.3, false},
	{latency, "8 B, peer asleep / UDP", "µs", paused, udpPaused, 1.3, false},
	{scale, "8 B messages, many queue pairs / one", "ns", manyQP, oneQP, 1.2, false},
}

// selected is the rows of a group, or those with the text in their names; all for "".
func selected(only string) []row {
	return slices.DeleteFunc(slices.Clone(rows), func(r row) bool { return r.Group != only && !strings.Contains(r.What, only) })
}

// modesOf is the modes that rows need, each once.
func modesOf(rows []row) []mode {
	var list []mode
	for _, r := range rows {
		for _, m := range []mode{r.Ours, r.Ref} {
			if !slices.Contains(list, m) {
				list = append(list, m)
			}
		}
	}
	return list
}

// verdict is what the rounds say about a row.
type verdict struct {
	row
	OursMedian, RefMedian float64
	Ratio                 stats.Interval
}

// judge takes the figures of each mode, round by round.
func judge(r row, figures map[mode][]float64) verdict {
	ours, ref := figures[r.Ours], figures[r.Ref]
	return verdict{row: r, OursMedian: stats.Median(ours), RefMedian: stats.Median(ref),
		Ratio: stats.MedianInterval(stats.Ratios(ours, ref), advise.Confidence)}
}
