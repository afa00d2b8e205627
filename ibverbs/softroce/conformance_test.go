package softroce

import (
	"errors"
	"net/netip"
	"syscall"
	"testing"
	"time"

	"github.com/purerdma/purerdma/ibverbs/driver"
	"github.com/purerdma/purerdma/ibverbs/driver/drivertest"
	"github.com/purerdma/purerdma/internal/racetest"
)

// openDevices opens the devices with these names.
func openDevices(t testing.TB, drv driver.Driver, names ...string) (a, b drivertest.End) {
	var ends []drivertest.End
	devices, err := drv.Devices()
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		for _, d := range devices {
			if d.Info().Name == name {
				ctx, err := d.Open()
				if err != nil {
					t.Fatal(err)
				}
				ends = append(ends, drivertest.End{Context: ctx, Port: 1})
			}
		}
	}
	return ends[0], ends[1]
}

var addrA, addrB = netip.MustParseAddr("10.9.0.1"), netip.MustParseAddr("10.9.0.2")

// patient is a QPAttr.Timeout of 268 ms: a machine under load keeps goroutines waiting.
const patient = 16

func TestConformanceOnSim(t *testing.T) {
	for name, c := range map[string]struct {
		addrs []netip.Addr
		b     string
		sim   SimConfig
	}{
		"two devices": {[]netip.Addr{addrA, addrB}, "soft1", SimConfig{}},
		"one device":  {[]netip.Addr{addrA}, "soft0", SimConfig{}},
		"IPv6":        {[]netip.Addr{netip.MustParseAddr("fd00::1"), netip.MustParseAddr("fd00::2")}, "soft1", SimConfig{MTU: 9000}},
	} {
		t.Run(name, func(t *testing.T) {
			drv := New(Config{Addrs: c.addrs, Network: OnSim(NewSim(c.sim))})
			drivertest.Run(t, drivertest.Config{
				Timeout: patient, Wait: time.Minute, PostAllocates: racetest.Enabled,
				Open: func(t testing.TB) (a, b drivertest.End) { return openDevices(t, drv, "soft0", c.b) },
			})
		})
	}
}

func TestConformanceOnUDP(t *testing.T) { conformanceOn(t, OnUDP(), 101) }

func TestConformanceOnPacketSockets(t *testing.T) {
	needPacketSockets(t)
	conformanceOn(t, OnPacketSockets(), 111)
}

// needPacketSockets skips a test where they cannot be had.
func needPacketSockets(t testing.TB) {
	l, err := OnPacketSockets().Open(netip.Addr{})
	if errors.Is(err, syscall.EPERM) || errors.Is(err, syscall.ENOTSUP) {
		t.Skip("packet sockets need Linux and CAP_NET_RAW")
	}
	if err != nil {
		t.Fatal(err)
	}
	_ = l.Close()
}

// conformanceOn takes addresses of loopback from 127.0.0.first on.
func conformanceOn(t *testing.T, n Network, first byte) {
	at := func(i byte) netip.Addr { return netip.AddrFrom4([4]byte{127, 0, 0, first + i}) }
	for name, addrs := range map[string][]netip.Addr{
		"two devices": {at(0), at(1)},
		"one device":  {at(2)},
		"IPv6":        {netip.MustParseAddr("::1")},
	} {
		t.Run(name, func(t *testing.T) {
			drv := New(Config{Addrs: addrs, Network: n})
			b := "soft0"
			if len(addrs) > 1 {
				b = "soft1"
			}
			drivertest.Run(t, drivertest.Config{
				Timeout: patient, Wait: time.Minute, PostAllocates: racetest.Enabled,
				Open: func(t testing.TB) (a, b2 drivertest.End) { return openDevices(t, drv, "soft0", b) },
			})
		})
	}
}
