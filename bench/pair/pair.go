// Package pair runs a benchmark's two ends as two processes on one machine: this program starts itself once more, and the two are
// connected by a socket that nobody else can reach.
package pair

import "errors"

// variable tells a process that it is the second one, and has its orders.
const variable = "PURERDMA_BENCH_END"

// ErrNotPair says that a process was not started by Start.
var ErrNotPair = errors.New(variable + " is for benchmarks that start themselves")
