package softroce

import (
	"net/netip"
	"testing"

	"github.com/purerdma/purerdma/ibverbs/driver"
	"github.com/purerdma/purerdma/ibverbs/driver/drivertest"
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
				Timeout: 12, PostAllocates: raceDetector,
				Open: func(t testing.TB) (a, b drivertest.End) { return openDevices(t, drv, "soft0", c.b) },
			})
		})
	}
}

func TestConformanceOnUDP(t *testing.T) {
	for name, addrs := range map[string][]netip.Addr{
		"two devices": {netip.MustParseAddr("127.0.0.101"), netip.MustParseAddr("127.0.0.102")},
		"one device":  {netip.MustParseAddr("127.0.0.103")},
		"IPv6":        {netip.MustParseAddr("::1")},
	} {
		t.Run(name, func(t *testing.T) {
			drv := New(Config{Addrs: addrs})
			b := "soft0"
			if len(addrs) > 1 {
				b = "soft1"
			}
			drivertest.Run(t, drivertest.Config{
				Timeout: 14, PostAllocates: raceDetector,
				Open: func(t testing.TB) (a, b2 drivertest.End) { return openDevices(t, drv, "soft0", b) },
			})
		})
	}
}
