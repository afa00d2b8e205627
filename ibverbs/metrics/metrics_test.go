package metrics_test

import (
	"errors"
	"strings"
	"syscall"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/purerdma/purerdma/ibverbs"
	"github.com/purerdma/purerdma/ibverbs/driver"
	"github.com/purerdma/purerdma/ibverbs/driver/memdriver"
	"github.com/purerdma/purerdma/ibverbs/metrics"
	"github.com/purerdma/purerdma/internal/leaktest"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

// told is a driver whose devices count and account for objects.
type (
	told        struct{ driver.Driver }
	toldDevice  struct{ driver.Device }
	toldContext struct{ driver.Context }
)

func (c told) Devices() ([]driver.Device, error) {
	ds, err := c.Driver.Devices()
	for i := range ds {
		ds[i] = toldDevice{ds[i]}
	}
	return ds, errors.Join(err, errors.New("one could not be read"))
}

func (d toldDevice) Open() (driver.Context, error) {
	c, err := d.Device.Open()
	return toldContext{c}, err
}

func (d toldDevice) Resources() (driver.Resources, error) {
	if d.Info().Name == "mem1" {
		return driver.Resources{}, syscall.EPERM
	}
	return driver.Resources{
		Counts: map[driver.ResourceKind]int{driver.ResourceQP: 3, driver.ResourceMR: 2},
		Objects: []driver.Resource{{Kind: driver.ResourceQP, PID: 7, Owner: "train"}, {Kind: driver.ResourceQP, PID: 7, Owner: "train"},
			{Kind: driver.ResourceMR, PID: 7, Owner: "train", Bytes: 4096}, {Kind: driver.ResourceMR, PID: 7, Owner: "train", Bytes: 1 << 20},
			{Kind: driver.ResourceQP, Owner: "ib_core"}},
	}, nil
}

func (toldContext) Counters(int) ([]driver.Counter, error) {
	return []driver.Counter{{Name: "port_xmit_data", Value: 5, Standard: true}, {Name: "rcvd_pkts", Value: 1 << 40}}, nil
}

func TestCollect(t *testing.T) {
	fabric := memdriver.New(memdriver.Config{Devices: make([]memdriver.DeviceConfig, 2)})
	c := metrics.New(ibverbs.WithDrivers(told{fabric}))
	const want = `
# HELP rdma_collect_error Whether something of the device could not be asked; device is empty for the list.
# TYPE rdma_collect_error gauge
rdma_collect_error{device=""} 1
rdma_collect_error{device="mem0"} 0
rdma_collect_error{device="mem1"} 1
# HELP rdma_objects RDMA objects of the machine.
# TYPE rdma_objects gauge
rdma_objects{device="mem0",kind="mr"} 2
rdma_objects{device="mem0",kind="qp"} 3
# HELP rdma_port_iba_total Port counters of the IBTA, in their own units.
# TYPE rdma_port_iba_total counter
rdma_port_iba_total{counter="port_xmit_data",device="mem0",port="1"} 5
rdma_port_iba_total{counter="port_xmit_data",device="mem1",port="1"} 5
# HELP rdma_port_hw_total Counters of the device's own.
# TYPE rdma_port_hw_total counter
rdma_port_hw_total{counter="rcvd_pkts",device="mem0",port="1"} 1.099511627776e+12
rdma_port_hw_total{counter="rcvd_pkts",device="mem1",port="1"} 1.099511627776e+12
# HELP rdma_port_up Whether the port is active.
# TYPE rdma_port_up gauge
rdma_port_up{device="mem0",port="1"} 1
rdma_port_up{device="mem1",port="1"} 1
# HELP rdma_process_objects RDMA objects of a process; pid 0 is the kernel.
# TYPE rdma_process_objects gauge
rdma_process_objects{device="mem0",kind="mr",owner="train",pid="7"} 2
rdma_process_objects{device="mem0",kind="qp",owner="ib_core",pid="0"} 1
rdma_process_objects{device="mem0",kind="qp",owner="train",pid="7"} 2
# HELP rdma_process_registered_bytes Memory in registrations of a process.
# TYPE rdma_process_registered_bytes gauge
rdma_process_registered_bytes{device="mem0",owner="train",pid="7"} 1.052672e+06
`
	if err := testutil.CollectAndCompare(c, strings.NewReader(want), "rdma_collect_error", "rdma_objects", "rdma_port_iba_total",
		"rdma_port_hw_total", "rdma_port_up", "rdma_process_objects", "rdma_process_registered_bytes"); err != nil {
		t.Error(err)
	}
	problems, err := testutil.CollectAndLint(c)
	if err != nil || len(problems) > 0 {
		t.Errorf("%v, %v", problems, err)
	}
}

// A device without counters and without an account is no error; one that is gone is.
func TestCollectWithout(t *testing.T) {
	fabric := memdriver.New(memdriver.Config{Devices: make([]memdriver.DeviceConfig, 1)})
	c := metrics.New(ibverbs.WithDrivers(fabric))
	if n := testutil.CollectAndCount(c, "rdma_port_hw_total", "rdma_objects"); n != 0 {
		t.Errorf("%d series", n)
	}
	if n := testutil.CollectAndCount(c, "rdma_device_info", "rdma_port_up"); n != 2 {
		t.Errorf("%d series", n)
	}
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(c)
	if _, err := registry.Gather(); err != nil {
		t.Error(err)
	}
}

// odd is a driver whose first device is called by bytes that are no text, as are the owner and a counter, and which has the second twice.
type (
	odd        struct{ driver.Driver }
	oddDevice  struct{ driver.Device }
	oddContext struct{ driver.Context }
)

func (c odd) Devices() ([]driver.Device, error) {
	ds, err := c.Driver.Devices()
	return []driver.Device{oddDevice{ds[0]}, ds[1], ds[1]}, err
}

func (d oddDevice) Open() (driver.Context, error) {
	c, err := d.Device.Open()
	return oddContext{c}, err
}

func (d oddDevice) Info() driver.DeviceInfo {
	in := d.Device.Info()
	in.Name, in.Firmware = "mem\xff", "\xfe"
	return in
}

func (oddDevice) Resources() (driver.Resources, error) {
	return driver.Resources{Objects: []driver.Resource{{Kind: driver.ResourceQP, PID: 7, Owner: "a\xff"}, {Kind: driver.ResourceQP, PID: 7, Owner: "a\xfe"}}}, nil
}

func (oddContext) Counters(int) ([]driver.Counter, error) {
	return []driver.Counter{{Name: "c\xff", Value: 1}}, nil
}

// Names are whatever a process or a device calls itself: none ends the program that serves the metrics, or costs the others theirs.
func TestNamesThatAreNoText(t *testing.T) {
	fabric := memdriver.New(memdriver.Config{Devices: make([]memdriver.DeviceConfig, 2)})
	c := metrics.New(ibverbs.WithDrivers(odd{fabric}))
	const want = `
# HELP rdma_collect_error Whether something of the device could not be asked; device is empty for the list.
# TYPE rdma_collect_error gauge
rdma_collect_error{device=""} 1
rdma_collect_error{device="mem1"} 0
rdma_collect_error{device="mem\uFFFD"} 0
# HELP rdma_process_objects RDMA objects of a process; pid 0 is the kernel.
# TYPE rdma_process_objects gauge
rdma_process_objects{device="mem\uFFFD",kind="qp",owner="a\uFFFD",pid="7"} 2
`
	text := strings.ReplaceAll(want, `\uFFFD`, "\uFFFD")
	if err := testutil.CollectAndCompare(c, strings.NewReader(text), "rdma_collect_error", "rdma_process_objects"); err != nil {
		t.Error(err)
	}
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(c)
	if _, err := registry.Gather(); err != nil {
		t.Error(err)
	}
}

// A program that serves metrics registers the collector once.
func ExampleNew() {
	registry := prometheus.NewRegistry()
	registry.MustRegister(metrics.New())
	// http.Handle("/metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
}
