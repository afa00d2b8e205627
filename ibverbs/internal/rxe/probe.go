package rxe

import (
	"errors"

	"github.com/purerdma/purerdma/ibverbs/driver"
	"github.com/purerdma/purerdma/ibverbs/internal/uapi"
)

// Probe implements driver.Context. What this package does not have is told apart
// from what the device or the kernel lacks.
func (c *Context) Probe(f driver.Feature) error {
	a := &c.attr
	switch f {
	case driver.FeatureAtomics:
		return has(f, a.AtomicCap != 0)
	case driver.FeatureUC, driver.FeatureResizeCQ: // every rdma_rxe has them
		return nil
	case driver.FeatureSRQ:
		return has(f, a.MaxSRQ > 0)
	case driver.FeatureResizeSRQ:
		return has(f, a.MaxSRQ > 0 && a.CapFlags&uapi.DeviceSRQResize != 0)
	case driver.FeatureMW2:
		return has(f, a.MaxMW > 0 && a.CapFlags&(uapi.DeviceMemWindowType2A|uapi.DeviceMemWindowType2B) != 0)
	case driver.FeatureMW1:
		if err := has(f, a.MaxMW > 0 && a.CapFlags&uapi.DeviceMemWindow != 0); err != nil {
			return err
		}
		return &driver.NotSupportedError{Feature: f, By: driver.LacksDriver}
	case driver.FeatureAH, driver.FeatureUD:
		return c.probeAH(f)
	case driver.FeatureMulticast:
		if err := has(f, a.MaxMcastGrp > 0); err != nil {
			return err
		}
		return c.probeAH(f)
	case driver.FeatureFlowLabelPort:
		// Before that the port is a hash of the QP number alone.
		if atLeast(release(c.proc), 5, 18) {
			return nil
		}
		return &driver.NotSupportedError{Feature: f, By: driver.LacksKernel, Since: "Linux 5.18"}
	case driver.FeatureModerateCQ:
		return c.Dev.ProbeModerateCQ()
	case driver.FeatureReregMR:
		return c.Dev.ProbeReregMR()
	case driver.FeatureDMABuf:
		return c.probeDMABuf()
	}
	return &driver.NotSupportedError{Feature: f, By: driver.LacksDevice}
}

// has answers for what the attributes of the device tell.
func has(f driver.Feature, there bool) error {
	if there {
		return nil
	}
	return &driver.NotSupportedError{Feature: f, By: driver.LacksDevice}
}

// probeAH makes an address handle to the device itself, which all of f needs: only
// the answer tells whether the kernel has numbers for them. A device whose port has
// no address yet is taken to have them.
func (c *Context) probeAH(f driver.Feature) error {
	if err := has(f, c.attr.MaxAH > 0); err != nil {
		return err
	}
	gids, err := c.GIDs(port)
	if err != nil || len(gids) == 0 {
		return err
	}
	pd, err := c.AllocPD()
	if err != nil {
		return err
	}
	defer func() { _ = pd.Close() }()
	ah, err := pd.CreateAH(driver.AHAttr{DGID: gids[0].GID, SGIDIndex: gids[0].Index, Port: port, HopLimit: 1, IsGlobal: true})
	if err == nil {
		return ah.Close()
	}
	var lacks *driver.NotSupportedError
	if errors.As(err, &lacks) {
		return &driver.NotSupportedError{Feature: f, By: lacks.By, Since: lacks.Since, Err: lacks.Err}
	}
	return nil
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
