// Package lab tells tests that carry the build tag hw whether they run in the guest that lab/vm boots, and what crossed its link.
//
// The guest has two Soft-RoCE devices, rxe0 and rxe1, on the two ends of one cable, the network devices v0 and v1. README.md
// beside this file describes it. Tests of everything but the link itself should take whatever device a machine has, so that they
// also run on real NICs; they need this package only to know how slow the machine is and to disturb the link.
package lab

import "os"

// Inside reports whether this process runs in the lab's guest. Emulation makes it slow, a copy of memory about sixty times
// slower than on the host, so a test there moves less data and waits longer.
func Inside() bool { return os.Getenv("PURERDMA_LAB") == "1" }
