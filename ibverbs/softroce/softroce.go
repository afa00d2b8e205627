package softroce

import (
	"context"
	"crypto/rand"
	"fmt"
	"io"
	"net/netip"

	"github.com/purerdma/purerdma/ibverbs/driver"
	"github.com/purerdma/purerdma/internal/cause"
)

const driverName = "softroce"

// Config of a driver value; zero fields mean the real thing. Time is package
// time's: testing/synctest is the other clock.
type Config struct {
	// Addrs is a device each, soft0 for the first. None is soft0 and soft1, each on
	// a free address of loopback, which other machines do not reach; the registered
	// driver follows PURERDMA_SOFTROCE_ADDRS, addresses with commas between them.
	Addrs []netip.Addr
	// Network is nil for UDP sockets. OnPacketSockets and OnSim are others; the
	// registered driver follows PURERDMA_SOFTROCE_LINK, udp or packet.
	Network Network
	// Rand makes keys and QP numbers, which others must not guess. Nil is
	// crypto/rand.
	Rand io.Reader
	// Capture gives a file for the packets of a device, which is written as pcapng
	// while the device is open and then closed. Nil captures nothing; the registered
	// driver follows PURERDMA_SOFTROCE_CAPTURE, the start of the names of its files.
	Capture func(device string) (io.WriteCloser, error)

	// ECN has reliable connections take part in explicit congestion notification:
	// their data may be marked instead of dropped by switches, marks that come are
	// answered with notification packets (CNP, one in 50 µs at most for each queue
	// pair), and senders obey those: they halve what they have in flight and then
	// add a packet for each round trip. It wants switches that mark (RED/ECN), and
	// peers that answer; adapters of RoCE do. False sends data that cannot be marked
	// and ignores notifications.
	ECN bool

	retryLimit uint8
}

type softDriver struct {
	devices    []driver.Device
	network    Network
	random     io.Reader
	captureTo  func(device string) (io.WriteCloser, error)
	retryLimit uint8
	ecn        bool
}

// New makes a driver for ibverbs.WithDrivers. Its devices bind their addresses when
// they are opened first, and free them when their last context is closed.
func New(c Config) driver.Driver {
	d := &softDriver{network: c.Network, random: c.Rand, captureTo: c.Capture, retryLimit: c.retryLimit, ecn: c.ECN}
	if d.network == nil {
		d.network = OnUDP()
	}
	if d.random == nil {
		d.random = rand.Reader
	}
	if len(c.Addrs) == 0 {
		c.Addrs = make([]netip.Addr, 2)
	}
	for i, a := range c.Addrs {
		d.devices = append(d.devices, newDevice(d, fmt.Sprintf("soft%d", i), a.Unmap().WithZone("")))
	}
	return d
}

func init() { driver.Register(New(fromEnv())) }

// Name is softroce.
func (d *softDriver) Name() string { return driverName }

func (d *softDriver) Devices() ([]driver.Device, error) { return d.devices, nil }

// Watch has nothing to tell: the list does not change.
func (d *softDriver) Watch(ctx context.Context, _ chan<- struct{}) error {
	<-ctx.Done()
	return cause.Of(ctx)
}
