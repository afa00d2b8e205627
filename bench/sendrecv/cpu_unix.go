//go:build unix

package main

import (
	"syscall"
	"time"
)

// processorTime is what this process has used so far.
func processorTime() (time.Duration, bool) {
	var r syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &r) != nil {
		return 0, false
	}
	return time.Duration(r.Utime.Nano() + r.Stime.Nano()), true
}
