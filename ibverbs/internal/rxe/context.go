package rxe

import (
	"context"
	"errors"
	"io/fs"
	"net/netip"
	"os"
	"sync"
	"syscall"

	"github.com/purerdma/purerdma/ibverbs/driver"
	"github.com/purerdma/purerdma/ibverbs/internal/kernel"
	"github.com/purerdma/purerdma/ibverbs/internal/uapi"
	"github.com/purerdma/purerdma/ibverbs/internal/uverbs"
)

// Provider opens the devices of rdma_rxe. It implements kernel.Provider.
type Provider struct {
	// Proc is /proc, for the kernel's release and the limits of the process.
	Proc fs.FS
	// JoinGroup makes net devices, by their indices, members of a multicast group
	// until leave is called.
	JoinGroup func(group netip.Addr, netDevs []int) (leave func() error, err error)
}

// New is a provider that looks at this machine.
func New() Provider { return Provider{Proc: os.DirFS("/proc"), JoinGroup: joinGroup} }

// DriverID implements kernel.Provider.
func (Provider) DriverID() uint32 { return uapi.DriverRXE }

// Open implements kernel.Provider.
func (p Provider) Open(w *kernel.World, n kernel.Node) (driver.Context, error) {
	k, err := kernel.OpenContext(w, n, uverbs.UHW{})
	if err != nil {
		return nil, err
	}
	attr, err := k.QueryDevice()
	if err != nil {
		return nil, errors.Join(err, k.Close())
	}
	return &Context{Context: k, proc: p.Proc, joinGroup: p.JoinGroup, attr: attr, qps: map[uint32]*QP{}, cqs: map[*CQ]struct{}{}}, nil
}

// Context is an open device. It implements driver.Context.
type Context struct {
	*kernel.Context
	proc      fs.FS
	joinGroup func(netip.Addr, []int) (func() error, error)
	attr      driver.DeviceAttr // as it was at the start; the limits never change

	mu  sync.Mutex
	qps map[uint32]*QP // by number
	cqs map[*CQ]struct{}
}

// AllocPD implements driver.Context.
func (c *Context) AllocPD() (driver.PD, error) {
	h, err := c.Dev.AllocPD(uverbs.UHW{})
	if err != nil {
		return nil, err
	}
	return &PD{dev: c, h: h}, nil
}

// NextEvent implements driver.Context. A CQ that was overrun says so by
// ErrCQOverrun from before the event is returned.
func (c *Context) NextEvent(ctx context.Context) (driver.Event, error) {
	e, err := c.Context.NextEvent(ctx)
	if err == nil && e.Type == driver.EventCQErr {
		c.overrun(e.Cookie)
	}
	return e, err
}

func (c *Context) overrun(cookie uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for cq := range c.cqs {
		if cq.cookie == cookie {
			cq.overrun.Store(true)
		}
	}
}

// failed notes the QPs of completions that did not succeed: those are in ERR.
func (c *Context) failed(wcs []driver.WC) {
	for i := range wcs {
		if wcs[i].Status == driver.Success {
			continue
		}
		c.mu.Lock()
		q := c.qps[wcs[i].QPN]
		c.mu.Unlock()
		if q != nil {
			q.failed()
		}
	}
}

// destroyed says whether an object whose destroy ended with err is gone, so that
// what it held can be given back: it stays only where it was in use.
func destroyed(err error) bool { return !errors.Is(err, syscall.EBUSY) }
