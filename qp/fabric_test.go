package qp

import (
	"io"
	"log/slog"
	"testing"

	"github.com/purerdma/purerdma/ibverbs"
	"github.com/purerdma/purerdma/ibverbs/driver/memdriver"
)

// end is an open device with what a QP needs.
type end struct {
	mem *memdriver.Device
	dev *ibverbs.Context
	pd  *ibverbs.PD
	cq  *ibverbs.CQ
}

// ends opens the devices of a fabric.
func ends(t testing.TB, devices ...memdriver.DeviceConfig) []end {
	t.Helper()
	fabric := memdriver.New(memdriver.Config{Devices: devices})
	found, err := ibverbs.Devices(ibverbs.WithDrivers(fabric), ibverbs.WithLogger(slog.New(slog.NewTextHandler(io.Discard, nil))))
	if err != nil {
		t.Fatal(err)
	}
	var all []end
	for _, d := range found {
		dev, err := d.Open()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := dev.Close(); err != nil {
				t.Error(err)
			}
		})
		e := end{mem: fabric.Device(d.Info().Name), dev: dev}
		if e.pd, err = dev.AllocPD(); err != nil {
			t.Fatal(err)
		}
		if e.cq, err = dev.CreateCQ(1024); err != nil {
			t.Fatal(err)
		}
		all = append(all, e)
	}
	return all
}

func (e end) qp(t testing.TB, opts ...Option) *QP {
	t.Helper()
	q, err := New(e.pd, e.cq, e.cq, opts...)
	if err != nil {
		t.Fatal(err)
	}
	return q
}

// port is a device of one port.
func port(p memdriver.PortConfig) memdriver.DeviceConfig {
	return memdriver.DeviceConfig{Ports: []memdriver.PortConfig{p}}
}

func query(t testing.TB, q *QP) ibverbs.QPAttr {
	t.Helper()
	a, err := q.Query()
	if err != nil {
		t.Fatal(err)
	}
	return a
}
