package driver

// Counter is one of the numbers that a port counts up: packets, repetitions, what
// was dropped and why. Names are the device's own.
type Counter struct {
	Name  string
	Value uint64
}

// CounterReader is a Context whose device counts. Others lack FeatureCounters.
type CounterReader interface {
	// Counters is all that the port counts, in an order that does not change. It
	// may be called at any time until Close, by several goroutines at once.
	Counters(port int) ([]Counter, error)
}
