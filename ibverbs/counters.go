package ibverbs

import "github.com/purerdma/purerdma/ibverbs/driver"

// Counter is one of the numbers that a port counts up. Names are the device's
// own: of the kernel's devices those of hw_counters in sysfs, of others the same
// words where they mean the same.
type Counter = driver.Counter

// Counters is all that a port, numbered from 1, counts: packets, repetitions, what
// was dropped and why. Values only rise; those of the kernel's devices are of all
// processes and began when the device was made, those of others when it was
// opened first. Counters are not read at one moment. Devices without any lack
// FeatureCounters. What could not be read is in the error beside the others. It may
// be called at any time and does not block on traffic; the caller owns the slice.
func (v *device) Counters(port int) (cs []Counter, err error) {
	if err := v.checkPort("read counters", port); err != nil {
		return nil, err
	}
	err = v.use("read counters", portName(port), func() (err error) {
		r, ok := v.d.(driver.CounterReader)
		if !ok {
			return &NotSupportedError{Feature: FeatureCounters, By: driver.LacksDriver}
		}
		cs, err = r.Counters(port)
		return err
	})
	return cs, err
}
