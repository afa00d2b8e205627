package tune

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"sync"

	"github.com/purerdma/purerdma/bench/measure"
	"github.com/purerdma/purerdma/bench/plan"
	"github.com/purerdma/purerdma/ibverbs"
	"github.com/purerdma/purerdma/mr"
	"github.com/purerdma/purerdma/nettransport"
	"github.com/purerdma/purerdma/qp"
	"github.com/purerdma/purerdma/socketboot"
)

// EndConfig is what an end decides for itself.
type EndConfig struct {
	Device   string // name, PCI address, net device or address; "" is the best there is
	Port     int    // 0 is the first active one
	GIDIndex int    // -1 chooses
	Find     []ibverbs.Option
	Log      *slog.Logger
}

// Attributes are those of queue pairs that both ends use alike.
type Attributes struct {
	ServiceLevel int `json:"service_level"`
	TrafficClass int `json:"traffic_class"`
	Timeout      int `json:"timeout"` // 4.096 µs × 2^Timeout
	Retry        int `json:"retry"`
	MTU          int `json:"mtu_bytes"` // 0 is the port's
}

// DefaultAttributes are NCCL's.
func DefaultAttributes() Attributes {
	d := qp.Defaults()
	return Attributes{Timeout: int(d.Timeout), Retry: int(d.Retry)}
}

// Check says what is wrong with them.
func (a Attributes) Check() error {
	var errs []error
	within := func(name string, v, low, high int) {
		if v < low || v > high {
			errs = append(errs, fmt.Errorf("%s %d is not within %d and %d", name, v, low, high))
		}
	}
	within("service level", a.ServiceLevel, 0, 15)
	within("traffic class", a.TrafficClass, 0, 255)
	within("timeout", a.Timeout, 0, 31)
	within("retry count", a.Retry, 0, 7)
	if _, ok := mtuOf(a.MTU); !ok {
		errs = append(errs, fmt.Errorf("MTU %d is none of 256, 512, 1024, 2048, 4096", a.MTU))
	}
	return errors.Join(errs...)
}

// mtuOf is the code of a size in bytes, 0 for 0.
func mtuOf(bytes int) (ibverbs.MTU, bool) {
	for m := ibverbs.MTU(0); m <= ibverbs.MTU4096; m++ {
		if m.Bytes() == bytes {
			return m, true
		}
	}
	return 0, false
}

// Description is an end in words and figures, told to the other one.
type Description struct {
	Device    string `json:"device"`
	Driver    string `json:"driver"`
	Firmware  string `json:"firmware"`
	PCI       string `json:"pci"`
	NUMANode  int    `json:"numa_node"` // -1 if unknown
	Software  bool   `json:"software"`
	Port      int    `json:"port"`
	LinkLayer string `json:"link_layer"`
	SpeedMbps int    `json:"speed_mbps"`
	MTU       int    `json:"mtu_bytes"`
	GIDIndex  int    `json:"gid_index"`
	GID       string `json:"gid"`
	GIDType   string `json:"gid_type"`
	NetDev    string `json:"net_device"`
	GIDReason string `json:"gid_reason"`
}

// End is one end: its device, the buffer and the connections. It belongs to one goroutine.
type End struct {
	dev      *ibverbs.Context
	port     int
	gidIndex int
	log      *slog.Logger
	about    Description

	attrs Attributes
	net   socketboot.Net
	rings rings
	buf   *mr.Buffer
	conns []*connection
}

// rings is where messages lie in the buffer: those to send, then room for those that arrive.
type rings struct{ out, in measure.Ring }

// sampleSeed is that of the pattern that lies ready in the slots to send; each slot has its own.
const sampleSeed = 0x7075726572646d61

// OpenEnd opens the device and checks its port and GID.
func OpenEnd(c EndConfig) (*End, error) {
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	dev, err := ibverbs.Open(c.Device, append(c.Find, ibverbs.WithLogger(c.Log))...)
	if err != nil {
		return nil, err
	}
	e := &End{dev: dev, port: c.Port, gidIndex: c.GIDIndex, log: c.Log}
	if err := e.describe(); err != nil {
		return nil, errors.Join(err, dev.Close())
	}
	return e, nil
}

// describe asks a transport, which checks all that a connection would.
func (e *End) describe() (err error) {
	t, err := e.transport(plan.Setting{QPs: 1})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, t.Close()) }()
	info, nic := e.dev.Info(), t.NICs()[0]
	p := nic.Ports[0]
	e.port = p.Port
	e.about = Description{Device: info.Name, Driver: info.Driver, Firmware: info.Firmware, PCI: info.PCI, NUMANode: info.NUMANode,
		Software: info.Software, Port: p.Port, LinkLayer: nic.LinkLayer.String(), SpeedMbps: nic.SpeedMbps, MTU: p.MTU.Bytes(),
		GIDIndex: p.GID.Index, GID: p.GID.GID.String(), GIDType: p.GID.Type.String(), NetDev: p.GID.NetDev, GIDReason: p.GIDReason}
	return nil
}

// Description is the end in words and figures.
func (e *End) Description() Description { return e.about }

func (e *End) transport(s plan.Setting) (*nettransport.Transport, error) {
	mtu, _ := mtuOf(e.attrs.MTU)
	opts := []qp.Option{qp.WithGIDIndex(e.gidIndex), qp.WithMTU(mtu),
		qp.WithServiceLevel(uint8(e.attrs.ServiceLevel)), qp.WithTrafficClass(uint8(e.attrs.TrafficClass)),
		qp.WithTimeout(uint8(e.attrs.Timeout), uint8(e.attrs.Retry))}
	return nettransport.New(nettransport.Config{
		NICs: []nettransport.NIC{{{Device: e.dev, Number: e.port}}}, QPsPerConn: s.QPs, Split: s.Split, QP: opts, Net: e.net, Log: e.log,
	})
}

// prepare makes the buffer for messages of up to size bytes, slots of them each way, and takes note of how connections are to be.
// local is the address of this machine at which the other end reaches it.
func (e *End) prepare(size, slots int, a Attributes, local netip.Addr) error {
	const page = 4096
	stride := (size + page - 1) / page * page
	e.rings.out = measure.Ring{Stride: stride, Slots: slots}
	e.rings.in = measure.Ring{Off: slots * stride, Stride: stride, Slots: slots}
	e.attrs = a
	e.net = socketboot.Net{Bind: netip.AddrPortFrom(local, 0), Zone: local.Zone(), Log: e.log}
	buf, err := mr.Alloc(2*slots*stride, mr.WithLogger(e.log))
	if err != nil {
		return err
	}
	e.buf = buf
	for slot := range slots {
		e.fillSlot(slot, stride)
	}
	return nil
}

// fillSlot lays the slot's own pattern ready, of which a shorter message has the beginning.
func (e *End) fillSlot(slot, n int) {
	off := e.rings.out.Off + slot*e.rings.out.Stride
	measure.Fill(e.buf.Bytes()[off:off+n], measure.MessageSeed(sampleSeed, slot))
}

// connection is a setting at work: a way out and a way in.
type connection struct {
	setting  plan.Setting
	t        *nettransport.Transport
	listener *nettransport.Listener
	out      *outgoing
	in       *incoming
}

// listen starts a connection; the handle is for the other end.
func (e *End) listen(ctx context.Context, s plan.Setting) (*connection, nettransport.Handle, error) {
	t, err := e.transport(s)
	if err != nil {
		return nil, nettransport.Handle{}, err
	}
	c := &connection{setting: s, t: t}
	e.conns = append(e.conns, c)
	if c.listener, err = t.Listen(ctx, 0); err != nil {
		return nil, nettransport.Handle{}, err
	}
	return c, c.listener.Handle(), nil
}

// join connects to the other end's handle and takes its connection to ours.
func (e *End) join(ctx context.Context, c *connection, h nettransport.Handle) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var accepted error
	var wait sync.WaitGroup
	wait.Go(func() {
		var r *nettransport.RecvComm
		if r, accepted = c.listener.Accept(ctx); accepted == nil {
			c.in = &incoming{c: r}
		}
	})
	s, err := c.t.Connect(ctx, 0, h)
	if err == nil {
		c.out = &outgoing{c: s}
	} else {
		cancel() // nobody will come
	}
	wait.Wait()
	if err == nil {
		err = accepted
	}
	if err != nil {
		return fmt.Errorf("opening a connection of %d QPs: %w", c.setting.QPs, err)
	}
	if err := c.listener.Close(); err != nil {
		return err
	}
	c.listener = nil
	if c.out.mr, err = c.out.c.RegMR(e.buf); err != nil {
		return err
	}
	c.in.mr, err = c.in.c.RegMR(e.buf)
	return err
}

func (c *connection) close() error {
	var errs []error
	if c.listener != nil {
		errs = append(errs, c.listener.Close())
	}
	if c.out != nil {
		errs = append(errs, c.out.c.Close())
	}
	if c.in != nil {
		errs = append(errs, c.in.c.Close())
	}
	return errors.Join(append(errs, c.t.Close())...)
}

// Close closes the connections, frees the buffer and closes the device.
func (e *End) Close() error {
	var errs []error
	for _, c := range e.conns {
		errs = append(errs, c.close())
	}
	e.conns = nil
	if e.buf != nil {
		errs = append(errs, e.buf.Close())
	}
	return errors.Join(append(errs, e.dev.Close())...)
}
