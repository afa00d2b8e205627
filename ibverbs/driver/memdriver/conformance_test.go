package memdriver_test

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/purerdma/purerdma/ibverbs/driver"
	"github.com/purerdma/purerdma/ibverbs/driver/drivertest"
	"github.com/purerdma/purerdma/ibverbs/driver/memdriver"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestConformance(t *testing.T) {
	for name, c := range map[string]struct {
		devices []memdriver.DeviceConfig
		b       string
	}{
		"one device":  {nil, "mem0"},
		"two devices": {[]memdriver.DeviceConfig{{}, {}}, "mem1"},
		"InfiniBand": {[]memdriver.DeviceConfig{
			{Ports: []memdriver.PortConfig{{LinkLayer: driver.LinkInfiniBand, ActiveMTU: driver.MTU1024}}},
			{Ports: []memdriver.PortConfig{{LinkLayer: driver.LinkInfiniBand}}},
		}, "mem1"},
	} {
		t.Run(name, func(t *testing.T) {
			fabric := memdriver.New(memdriver.Config{Devices: c.devices})
			drivertest.Run(t, drivertest.Config{
				Timeout: 12,
				Open: func(t testing.TB) (a, b drivertest.End) {
					return openEnd(t, fabric, "mem0"), openEnd(t, fabric, c.b)
				},
			})
			for _, dev := range []string{"mem0", c.b} {
				if contexts, objects := fabric.Device(dev).Leaks(); contexts+objects != 0 {
					t.Errorf("%s has %d contexts and %d objects left", dev, contexts, objects)
				}
			}
		})
	}
}

func openEnd(t testing.TB, fabric *memdriver.Driver, name string) drivertest.End {
	ctx, err := fabric.Device(name).Open()
	if err != nil {
		t.Fatal(err)
	}
	return drivertest.End{Context: ctx, Port: 1, GIDIndex: 0}
}
