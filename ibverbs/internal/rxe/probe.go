package rxe

import (
	"github.com/purerdma/purerdma/ibverbs/driver"
)

// Probe implements driver.Context. What this package does not have yet is told
// apart from what the device lacks.
func (c *Context) Probe(f driver.Feature) error {
	switch f {
	case driver.FeatureAtomics:
		if c.attr.AtomicCap != 0 {
			return nil
		}
		return &driver.NotSupportedError{Feature: f, By: driver.LacksDevice}
	case driver.FeatureCounters:
		_, err := c.Counters(1)
		return err
	case driver.FeatureFlowLabelPort:
		// Before that the port is a hash of the QP number alone.
		if atLeast(release(c.proc), 5, 18) {
			return nil
		}
		return &driver.NotSupportedError{Feature: f, By: driver.LacksKernel, Since: "Linux 5.18"}
	case driver.FeatureSRQ, driver.FeatureAH, driver.FeatureResizeCQ, driver.FeatureMW1, driver.FeatureMW2,
		driver.FeatureMulticast, driver.FeatureUC, driver.FeatureUD:
		return &driver.NotSupportedError{Feature: f, By: driver.LacksDriver}
	case driver.FeatureDMABuf:
		return c.probeDMABuf()
	}
	return &driver.NotSupportedError{Feature: f, By: driver.LacksDevice}
}

// probeDMABuf registers nothing: a device that has the call refuses the
// descriptor, one that has not refuses before it looks.
func (c *Context) probeDMABuf() error {
	pd, err := c.AllocPD()
	if err != nil {
		return err
	}
	defer func() { _ = pd.Close() }()
	mr, err := pd.RegDMABuf(driver.DMABuf{FD: -1, Length: 1}, 0)
	if err == nil {
		return mr.Close()
	}
	if _, lacks := err.(*driver.NotSupportedError); lacks {
		return err
	}
	return nil
}
