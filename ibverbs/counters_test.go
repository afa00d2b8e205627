package ibverbs_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/purerdma/purerdma/ibverbs"
	"github.com/purerdma/purerdma/ibverbs/driver"
	"github.com/purerdma/purerdma/ibverbs/driver/memdriver"
)

// counting is a driver whose devices have one counter.
type (
	counting        struct{ driver.Driver }
	countingDevice  struct{ driver.Device }
	countingContext struct{ driver.Context }
)

func (c counting) Devices() ([]driver.Device, error) {
	ds, err := c.Driver.Devices()
	for i := range ds {
		ds[i] = countingDevice{ds[i]}
	}
	return ds, err
}

func (d countingDevice) Open() (driver.Context, error) {
	c, err := d.Device.Open()
	return countingContext{c}, err
}

func (countingContext) Counters(port int) ([]driver.Counter, error) {
	return []driver.Counter{{Name: "rcvd_pkts", Value: uint64(port)}}, nil
}

func TestCounters(t *testing.T) {
	fabric := memdriver.New(memdriver.Config{})
	dev := open(t, fabric)
	var not *ibverbs.NotSupportedError
	if _, err := dev.Counters(1); !errors.As(err, &not) || not.Feature != ibverbs.FeatureCounters || dev.Probe(ibverbs.FeatureCounters) == nil {
		t.Errorf("a device without counters: %v", err)
	}
	if _, err := dev.Counters(2); err == nil || !strings.Contains(err.Error(), "ports are numbered") {
		t.Errorf("a port that is not there: %v", err)
	}
	dev = get(ibverbs.Open("mem0", ibverbs.WithDrivers(counting{fabric})))(t)
	if cs, err := dev.Counters(1); err != nil || len(cs) != 1 || cs[0] != (ibverbs.Counter{Name: "rcvd_pkts", Value: 1}) {
		t.Errorf("%+v, %v", cs, err)
	}
	try(t, dev.Close())
	if _, err := dev.Counters(1); !errors.Is(err, ibverbs.ErrClosed) {
		t.Errorf("after Close: %v", err)
	}
}
