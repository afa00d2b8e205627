// Package metrics gives the state of a machine's RDMA devices to Prometheus: ports, their counters, and the objects of each process.
//
//	prometheus.MustRegister(metrics.New())
//
// It is a package of its own so that importing ibverbs does not bring in Prometheus' client. Each collection lists the devices anew,
// so that those which appear, vanish or are renamed are followed, and what one of them refuses hides no other.
//
// # Names
//
//	rdma_device_info{device,driver,firmware,node_guid,pci,bond}       1
//	rdma_port_up{device,port}                                         1 if the port is active
//	rdma_port_rate_bytes_per_second{device,port}
//	rdma_port_iba_total{device,port,counter}                          counters of the IBTA, in their own units
//	rdma_port_hw_total{device,port,counter}                           the device's own
//	rdma_objects{device,kind}                                         of the whole machine, by the kinds of rdma res
//	rdma_process_objects{device,kind,pid,owner}                       of each process that may be seen
//	rdma_process_registered_bytes{device,pid,owner}                   memory of its registrations
//	rdma_collect_error{device}                                        1 if something of it could not be asked
//
// Counters carry their names in a label, since each kind of device has others: mlx5 some sixty, Soft-RoCE fifteen.
package metrics

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/purerdma/purerdma/ibverbs"
)

// Collector is a prometheus.Collector. It opens devices during a collection only and holds nothing between two. Collections may run at
// the same time.
type Collector struct{ opts []ibverbs.Option }

// New is a collector of the devices that ibverbs.Devices lists with these options.
func New(opts ...ibverbs.Option) *Collector { return &Collector{opts: opts} }

var (
	info       = desc("rdma_device_info", "What is known of the device; the value is 1.", "device", "driver", "firmware", "node_guid", "pci", "bond")
	up         = desc("rdma_port_up", "Whether the port is active.", "device", "port")
	speed      = desc("rdma_port_rate_bytes_per_second", "Signal rate of all lanes, absent if unknown.", "device", "port")
	standard   = desc("rdma_port_iba_total", "Port counters of the IBTA, in their own units.", "device", "port", "counter")
	hardware   = desc("rdma_port_hw_total", "Counters of the device's own.", "device", "port", "counter")
	objects    = desc("rdma_objects", "RDMA objects of the machine.", "device", "kind")
	ofProcess  = desc("rdma_process_objects", "RDMA objects of a process; pid 0 is the kernel.", "device", "kind", "pid", "owner")
	registered = desc("rdma_process_registered_bytes", "Memory in registrations of a process.", "device", "pid", "owner")
	failed     = desc("rdma_collect_error", "Whether something of the device could not be asked; device is empty for the list.", "device")
)

func desc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc(name, help, labels, nil)
}

// Describe implements prometheus.Collector.
func (*Collector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{info, up, speed, standard, hardware, objects, ofProcess, registered, failed} {
		ch <- d
	}
}

// Collect implements prometheus.Collector. It asks the kernel some ten times for each device.
func (c *Collector) Collect(ch chan<- prometheus.Metric) {
	found, err := ibverbs.Devices(c.opts...)
	incomplete := err != nil
	seen := map[string]bool{}
	for _, d := range found {
		s := scrape{ch: ch, device: label(d.Info().Name)}
		if seen[s.device] { // of two drivers: equal series would cost all others their collection
			incomplete = true
			continue
		}
		seen[s.device] = true
		s.info(d.Info())
		s.ports(d)
		s.objects(d)
		ch <- gauge(failed, truth(s.failed), s.device)
	}
	ch <- gauge(failed, truth(incomplete), "")
}

// label makes a label's value of what others have chosen. A process may give itself any name, and the client panics at one that is
// not UTF-8.
func label(s string) string { return strings.ToValidUTF8(s, "\uFFFD") }

// scrape is one collection of one device.
type scrape struct {
	ch     chan<- prometheus.Metric
	device string
	failed bool
}

func gauge(d *prometheus.Desc, v float64, labels ...string) prometheus.Metric {
	return prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
}

func truth(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

// note takes down a failure; that a device does not have something is none.
func (s *scrape) note(err error) (ok bool) {
	if err != nil && !errors.Is(err, ibverbs.ErrNotSupported) {
		s.failed = true
	}
	return err == nil
}

func (s *scrape) info(in ibverbs.DeviceInfo) {
	g := in.NodeGUID
	guid := fmt.Sprintf("%04x:%04x:%04x:%04x", uint16(g>>48), uint16(g>>32), uint16(g>>16), uint16(g))
	s.ch <- gauge(info, 1, s.device, label(in.Driver), label(in.Firmware), guid, label(in.PCI), label(in.Bond))
}

func (s *scrape) ports(d *ibverbs.Device) {
	dev, err := d.Open()
	if !s.note(err) {
		return
	}
	defer func() { s.note(dev.Close()) }()
	for n := 1; n <= d.Info().Ports; n++ {
		port := strconv.Itoa(n)
		if a, err := dev.Port(n); s.note(err) {
			s.ch <- gauge(up, truth(a.State == ibverbs.PortActive), s.device, port)
			if a.SpeedMbps > 0 {
				s.ch <- gauge(speed, float64(a.SpeedMbps)*1e6/8, s.device, port)
			}
		}
		cs, err := dev.Counters(n)
		s.note(err)
		for _, c := range cs {
			d := hardware
			if c.Standard {
				d = standard
			}
			s.ch <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(c.Value), s.device, port, label(c.Name))
		}
	}
}

// owner is a process with objects of one kind.
type owner struct {
	kind  ibverbs.ResourceKind
	pid   int
	owner string
}

func (s *scrape) objects(d *ibverbs.Device) {
	res, err := d.Resources()
	if !s.note(err) {
		return
	}
	s.failed = s.failed || res.Partial
	for kind, n := range res.Counts {
		s.ch <- gauge(objects, float64(n), s.device, label(string(kind)))
	}
	count, bytes := map[owner]int{}, map[owner]uint64{}
	for _, o := range res.Objects {
		of := owner{o.Kind, o.PID, label(o.Owner)}
		count[of]++
		if o.Kind == ibverbs.ResourceMR {
			bytes[of] += o.Bytes
		}
	}
	for o, n := range count {
		s.ch <- gauge(ofProcess, float64(n), s.device, string(o.kind), strconv.Itoa(o.pid), o.owner)
	}
	for o, n := range bytes {
		s.ch <- gauge(registered, float64(n), s.device, strconv.Itoa(o.pid), o.owner)
	}
}
