// Command qptune finds how many queue pairs a connection should have.
//
// It connects two processes by 1, 2, 4, 8 and 16 queue pairs, with messages over the queue pairs in turn and with each message
// split over all, measures bandwidth, message rate and latency over message sizes, and recommends a setting with the reason.
// With two devices on one machine both ends start by themselves:
//
//	qptune
//
// On two hosts:
//
//	host1$ qptune --server
//	host2$ qptune --connect host1
//
// With --json standard output has one JSON document whichever way the command ends; testdata/shape.txt lists its keys. The exit code
// is 0 for success, 1 for failure, 2 for wrong usage. The script lab beside this file runs it where there is no RDMA device.
package main

import (
	"os"

	"github.com/purerdma/purerdma/bench/pair"
	_ "github.com/purerdma/purerdma/ibverbs/softroce" // where there is no adapter
)

func main() {
	if pair.Second() {
		os.Exit(second())
	}
	os.Exit((&tool{}).command().Main(os.Args[1:], os.Stdout, os.Stderr))
}
