package mlx5

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"syscall"

	"github.com/purerdma/purerdma/ibverbs/driver"
	"github.com/purerdma/purerdma/ibverbs/internal/kernel"
	"github.com/purerdma/purerdma/ibverbs/internal/uapi"
	"github.com/purerdma/purerdma/ibverbs/internal/uverbs"
	"github.com/purerdma/purerdma/internal/mlx5prm"
	"github.com/purerdma/purerdma/internal/mmio"
)

// Provider opens the devices of mlx5_ib. It implements kernel.Provider.
type Provider struct {
	// Allowed lets devices be opened though the driver is unproven.
	Allowed bool
	// CQESize is the bytes of a completion: 64, 128, or 0 for 64.
	CQESize int
}

// DriverID implements kernel.Provider.
func (Provider) DriverID() uint32 { return uapi.DriverMLX5 }

// errUnproven is why devices are not opened. Hint says how they are.
var errUnproven = &driver.Error{
	Err:  &driver.NotSupportedError{Feature: "a ConnectX adapter", By: driver.LacksDriver},
	Hint: "the driver of mlx5 has never run on an adapter: set PURERDMA_MLX5=unproven to try it",
}

// Open implements kernel.Provider.
func (p Provider) Open(w *kernel.World, n kernel.Node) (driver.Context, error) {
	if !p.Allowed {
		return nil, errUnproven
	}
	if !mmio.ForDevices {
		return nil, fmt.Errorf("memory barriers for devices on this processor: %w", driver.ErrNotSupported)
	}
	req := uapi.MLX5AllocUContextReqV2{MaxCQEVersion: 1, LibCaps: uapi.MLX5LibCap4KUAR | uapi.MLX5LibCapDynUAR}
	var resp uapi.MLX5AllocUContextResp
	k, err := kernel.OpenContext(w, n, uverbs.UHW{In: bytesOf(&req), Out: bytesOf(&resp)})
	if err != nil {
		return nil, err
	}
	c, err := newContext(k, &resp, p.CQESize)
	if err != nil {
		return nil, errors.Join(err, k.Close())
	}
	return c, nil
}

func newContext(k *kernel.Context, resp *uapi.MLX5AllocUContextResp, cqe int) (*Context, error) {
	if cqe == 0 {
		cqe = cqeSize
	}
	c := &Context{Context: k, cqeSize: uint32(cqe), bfRegSize: int(resp.BFRegSize), uidx: resp.CQEVersion == 1,
		maxSQDesc: int(resp.MaxSQDescSz), maxRQDesc: int(resp.MaxRQDescSz), maxBB: int(resp.MaxSendWQEBB), maxRecv: int(resp.MaxRecvWR), maxSRQ: int(resp.MaxSRQRecvWR),
		ece: resp.CompMask&uapi.MLX5RespMaskECE != 0, resolves: resp.CmdsSuppUHW&uapi.MLX5SuppUHWCreateAH != 0,
		cqs: map[*CQ]struct{}{}, live: map[*QP]struct{}{}, dead: map[*QP]struct{}{}, ports: map[int]portInfo{}, windows: windows{byIndex: map[uint32]*MW{}}}
	var err error
	switch {
	case cqe != 64 && cqe != 128:
		err = hint(syscall.EINVAL, "completions are of 64 or 128 bytes, not %d", cqe)
	case resp.CQEVersion > 1:
		err = &uverbs.ResponseError{What: "CQE version", Value: uint64(resp.CQEVersion)}
	case c.bfRegSize != 0 && c.bfRegSize < 2*mlx5prm.SendBB || c.bfRegSize%(2*mlx5prm.SendBB) != 0 || mlx5prm.UARBlueFlame+doorbellsPerUAR*c.bfRegSize > 4096:
		err = &uverbs.ResponseError{What: "size of a doorbell", Value: uint64(resp.BFRegSize)}
	case c.maxSQDesc < sendOverheadRC || c.maxRQDesc < mlx5prm.DSUnit:
		err = &uverbs.ResponseError{What: "size of a queue entry", Value: uint64(min(resp.MaxSQDescSz, resp.MaxRQDescSz))}
	}
	if err != nil {
		return nil, err
	}
	if c.attr, err = k.QueryDevice(); err != nil {
		return nil, err
	}
	if c.armUAR, err = k.Dev.AllocUAR(uapi.MLX5UARTypeNC); err != nil {
		return nil, err
	}
	if c.armUAR.PageID > math.MaxUint16 {
		return nil, errors.Join(&uverbs.ResponseError{What: "number of a UAR", Value: uint64(c.armUAR.PageID)}, c.freeUARs())
	}
	c.armReg = register(c.armUAR.Mem, mlx5prm.UARArm)
	return c, nil
}

// Context is an open device. It implements driver.Context.
type Context struct {
	*kernel.Context
	attr                                 driver.DeviceAttr // the limits never change
	cqeSize                              uint32
	bfRegSize                            int // of both halves; 0 where doorbells cannot be write-combining, as in some virtual machines
	maxSQDesc, maxRQDesc, maxBB, maxRecv int
	maxSRQ                               int
	uidx                                 bool // completions name a QP by its user index
	ece                                  bool
	resolves                             bool // the kernel tells the MAC of an address handle
	armUAR                               uverbs.UAR
	armReg                               *uint64
	qps                                  table
	windows                              windows

	mu        sync.Mutex
	uars      []uverbs.UAR
	doorbells []*doorbell // that no QP has
	cqs       map[*CQ]struct{}
	live      map[*QP]struct{}
	dead      map[*QP]struct{} // destroyed and not purged
	ports     map[int]portInfo // that were asked for
}

// AllocPD implements driver.Context.
func (c *Context) AllocPD() (driver.PD, error) {
	var resp uapi.MLX5AllocPDResp
	h, err := c.Dev.AllocPD(uverbs.UHW{Out: bytesOf(&resp)})
	if err != nil {
		return nil, err
	}
	return &PD{dev: c, h: h}, nil
}

// CompChannel is a completion channel that counts the events of its CQs: the
// number goes into the next arm. It implements driver.CompChannel.
type CompChannel struct {
	*uverbs.CompChannel
	dev *Context
}

// CreateCompChannel implements driver.Context.
func (c *Context) CreateCompChannel() (driver.CompChannel, error) {
	ch, err := c.Dev.CreateCompChannel()
	if err != nil {
		return nil, err
	}
	return &CompChannel{ch, c}, nil
}

// Wait implements driver.CompChannel.
func (h *CompChannel) Wait(ctx context.Context) (uint64, error) {
	cookie, err := h.CompChannel.Wait(ctx)
	if err == nil {
		h.dev.each(cookie, func(cq *CQ) {
			if cq.channel == h {
				cq.events.Add(1)
			}
		})
	}
	return cookie, err
}

// NextEvent implements driver.Context. A CQ that was overrun says so by
// ErrCQOverrun from before the event is returned, and of a QP that failed it is known.
func (c *Context) NextEvent(ctx context.Context) (driver.Event, error) {
	e, err := c.Context.NextEvent(ctx)
	if err != nil {
		return e, err
	}
	switch e.Type {
	case driver.EventCQErr:
		c.each(e.Cookie, func(cq *CQ) { cq.overrun.Store(true) })
	case driver.EventQPFatal, driver.EventQPReqErr, driver.EventQPAccessErr:
		c.mu.Lock()
		for q := range c.live {
			if q.cookie == e.Cookie {
				q.state.Store(uint32(driver.StateErr))
			}
		}
		c.mu.Unlock()
	}
	return e, nil
}

func (c *Context) each(cookie uint64, f func(*CQ)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for cq := range c.cqs {
		if cq.cookie == cookie {
			f(cq)
		}
	}
}

// Probe implements driver.Context.
func (c *Context) Probe(f driver.Feature) error {
	by := driver.LacksDriver
	switch f {
	case driver.FeatureAtomics:
		if c.attr.AtomicCap != 0 {
			return nil
		}
		by = driver.LacksDevice
	case driver.FeatureUC, driver.FeatureUD, driver.FeatureResizeCQ:
		return nil
	case driver.FeatureAH:
		if c.resolves {
			return nil
		}
		by = driver.LacksKernel
	case driver.FeatureECE:
		if c.ece {
			return nil
		}
		by = driver.LacksDevice
	case driver.FeatureReregMR:
		return c.Dev.ProbeReregMR()
	case driver.FeatureMW2:
		if c.attr.MaxMW > 0 && c.attr.CapFlags&(uapi.DeviceMemWindowType2A|uapi.DeviceMemWindowType2B) != 0 {
			return c.probeMW()
		}
		by = driver.LacksDevice
	case driver.FeatureSRQ:
		if c.attr.MaxSRQ > 0 && c.maxSRQ > 0 {
			return nil
		}
		by = driver.LacksDevice
	case driver.FeatureResizeSRQ:
		by = driver.LacksKernel
	case driver.FeatureMulticast:
		if c.attr.MaxMcastGrp > 0 {
			return nil
		}
		by = driver.LacksDevice
	case driver.FeatureModerateCQ:
		return c.Dev.ProbeModerateCQ()
	case driver.FeatureDMABuf:
		return c.probeDMABuf()
	}
	return &driver.NotSupportedError{Feature: f, By: by}
}

// probeMW makes a window, for kernels whose device has them and that have not.
func (c *Context) probeMW() error {
	pd, err := c.AllocPD()
	if err != nil {
		return err
	}
	defer func() { _ = pd.Close() }()
	w, err := pd.AllocMW()
	if err != nil {
		return err
	}
	return w.Close()
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
	if errors.Is(err, driver.ErrNotSupported) {
		return err
	}
	return nil
}

// bury says whether q was destroyed and its memory is left.
func (c *Context) bury(q *QP) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	_, dead := c.dead[q]
	delete(c.dead, q)
	return dead
}

// Close implements driver.Context.
func (c *Context) Close() error {
	err := c.freeUARs()
	for q := range c.dead {
		err = errors.Join(err, q.mem.Release())
	}
	c.dead = nil
	return errors.Join(err, c.Context.Close())
}
