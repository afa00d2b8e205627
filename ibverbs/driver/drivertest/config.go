package drivertest

import (
	"testing"
	"time"

	"github.com/purerdma/purerdma/ibverbs/driver"
)

// Config is a driver under test, and what its device cannot do.
type Config struct {
	// Open gives two ends that reach each other. It is called once for each test.
	// The suite closes the contexts; both ends may have one context.
	Open func(t testing.TB) (a, b End)
	// Wait is the longest wait for something that must happen, 10 s if 0.
	Wait time.Duration
	// Quiet is how long to look for something that must not happen, 20 ms if 0.
	Quiet time.Duration
	// MaxMessage is the longest message to try, in bytes, 1 MiB if 0.
	MaxMessage int
	// Rounds scales the tests that repeat themselves, 100 if 0.
	Rounds int
	// Timeout is QPAttr.Timeout of the connections, 14 (67 ms) if 0. Tests of a
	// peer that is gone wait a few times this long.
	Timeout uint8
	// Seed of the random choices; 0 takes one from the clock and prints it.
	Seed uint64

	NoAtomics     bool // even though the device says it has them
	NoSRQ         bool // even though the device says it has them
	NoUC          bool // even though the device says it has them
	NoUD          bool // even though the device says it has them
	NoMW          bool // nor messages that invalidate, even though the device says it has memory windows of type 2
	NoSQD         bool // no state SQD
	NoOverrun     bool // a CQ that is too small is not noticed
	PostAllocates bool // posting or polling allocates, for a device that moves packets in the callers' goroutines
}

// End is a port of a device that a test uses, with the GID to use as source.
type End struct {
	Context  driver.Context
	Port     int
	GIDIndex int
}

func (c Config) withDefaults(t *testing.T) Config {
	if c.Wait == 0 {
		c.Wait = 10 * time.Second
	}
	if c.Quiet == 0 {
		c.Quiet = 20 * time.Millisecond
	}
	if c.MaxMessage == 0 {
		c.MaxMessage = 1 << 20
	}
	if c.Rounds == 0 {
		c.Rounds = 100
	}
	if c.Timeout == 0 {
		c.Timeout = 14
	}
	if c.Seed == 0 {
		c.Seed = uint64(time.Now().UnixNano())
		t.Logf("Config.Seed %d", c.Seed)
	}
	return c
}

// Run runs the suite. Each part is a subtest.
func Run(t *testing.T, c Config) {
	c = c.withDefaults(t)
	for _, part := range []struct {
		name string
		run  func(*testing.T, Config)
	}{
		{"Queries", testQueries},
		{"Limits", testLimits},
		{"Memory", testMemory},
		{"Rereg", testRereg},
		{"Operations", testOperations},
		{"Inline", testInline},
		{"GatherScatter", testGatherScatter},
		{"Atomics", testAtomics},
		{"Order", testOrder},
		{"PathMTU", testPathMTU},
		{"PSNWrap", testPSNWrap},
		{"Signalling", testSignalling},
		{"Refusals", testRefusals},
		{"QueueFull", testQueueFull},
		{"States", testStates},
		{"Flush", testFlush},
		{"RemovesEntries", testRemovesEntries},
		{"Reconnect", testReconnect},
		{"LocalErrors", testLocalErrors},
		{"RemoteErrors", testRemoteErrors},
		{"ReceiveErrors", testReceiveErrors},
		{"ReceiverNotReady", testReceiverNotReady},
		{"PeerGone", testPeerGone},
		{"Events", testEvents},
		{"Moderation", testModeration},
		{"AsyncEvents", testAsyncEvents},
		{"Overrun", testOverrun},
		{"SharedCQ", testSharedCQ},
		{"SRQ", testSRQ},
		{"UC", testUC},
		{"UD", testUD},
		{"MW", testMW},
		{"Teardown", testTeardown},
		{"CloseUnderLoad", testCloseUnderLoad},
		{"Allocations", testAllocations},
	} {
		t.Run(part.name, func(t *testing.T) { part.run(t, c) })
	}
}
