package driver

// Counter is one of the numbers that a port counts up: packets, repetitions, what
// was dropped and why. Names are the device's own.
type Counter struct {
	Name  string
	Value uint64
	// Standard is true for the port counters that the IBTA defines, which sysfs has
	// in the folder counters, in units of its own: port_xmit_data counts 4 bytes.
	Standard bool
}

// CounterReader is a Context whose device counts. Others lack FeatureCounters.
type CounterReader interface {
	// Counters is all that the port counts, in an order that does not change. It
	// may be called at any time until Close, by several goroutines at once.
	Counters(port int) ([]Counter, error)
}
