package driver

// BasePD answers every optional call of a PD with a NotSupportedError by the
// driver. Drivers embed it, so that a verb added later breaks none.
type BasePD struct{}

// BaseCQ does the same for a CQ.
type BaseCQ struct{}

// BaseQP does the same for a QP.
type BaseQP struct{}

// BaseSRQ does the same for an SRQ.
type BaseSRQ struct{}

//lint:ignore U1000 nothing calls it: it makes the drivers embed BasePD
func (BasePD) basePD() {}

//lint:ignore U1000 as above
func (BaseCQ) baseCQ() {}

//lint:ignore U1000 as above
func (BaseQP) baseQP() {}

//lint:ignore U1000 as above
func (BaseSRQ) baseSRQ() {}

// RegDMABuf is not supported.
func (BasePD) RegDMABuf(DMABuf, Access) (MR, error) { return nil, lacks(FeatureDMABuf) }

// CreateSRQ is not supported.
func (BasePD) CreateSRQ(SRQConfig) (SRQ, error) { return nil, lacks(FeatureSRQ) }

// CreateAH is not supported.
func (BasePD) CreateAH(AHAttr) (AH, error) { return nil, lacks(FeatureAH) }

// AllocMW is not supported.
func (BasePD) AllocMW() (MW, error) { return nil, lacks(FeatureMW2) }

// Moderate is not supported.
func (BaseCQ) Moderate(int, int) error { return lacks(FeatureModerateCQ) }

// Resize is not supported.
func (BaseCQ) Resize(int) error { return lacks(FeatureResizeCQ) }

// Purge does nothing: the driver takes completions out in Close and Modify, under
// locks of its own.
func (BaseQP) Purge() {}

// Multicast is not supported.
func (BaseQP) Multicast(GID, uint16, bool) error { return lacks(FeatureMulticast) }

// Resize is not supported.
func (BaseSRQ) Resize(int) error { return lacks(FeatureResizeSRQ) }

func lacks(f Feature) error { return &NotSupportedError{Feature: f, By: LacksDriver} }
