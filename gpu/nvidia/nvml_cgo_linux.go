//go:build cgo

package nvidia

import (
	"encoding/binary"
	"fmt"
	"sync"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/purerdma/purerdma/gpu"
)

// nvmlReady loads NVML once. Its failure is no error: CUDA's answers stand in.
var nvmlReady = sync.OnceValue(func() bool { return nvml.Init() == nvml.SUCCESS })

// nvmlLinks is the links by NVML, known unless it does not answer for d.
func nvmlLinks(d gpu.DeviceInfo) (links []gpu.Link, known bool) {
	if !d.PCI.Valid || !nvmlReady() {
		return nil, false
	}
	dev, r := nvml.DeviceGetHandleByPciBusId(d.PCI.String())
	if r != nvml.SUCCESS {
		return nil, false
	}
	for i := range nvml.NVLINK_MAX_LINKS {
		on, r := dev.GetNvLinkState(i)
		if r != nvml.SUCCESS || on != nvml.FEATURE_ENABLED {
			continue // ends and gaps of the table look alike
		}
		links = addLink(links, remote(dev, i))
	}
	return links, true
}

// remote is the other end of a link.
func remote(dev nvml.Device, i int) gpu.Link {
	l := gpu.Link{Kind: nvlink, Count: 1}
	if pci, r := dev.GetNvLinkRemotePciInfo(i); r == nvml.SUCCESS {
		l.To = gpu.BusID{Domain: pci.Domain, Bus: uint8(pci.Bus), Device: uint8(pci.Device), Valid: true}
	}
	what, r := dev.GetNvLinkRemoteDeviceType(i)
	l.ToGPU = r == nvml.SUCCESS && what == nvml.NVLINK_DEVICE_TYPE_GPU
	return l
}

// nvmlTraffic adds up the counters of all links that are on.
func nvmlTraffic(d gpu.DeviceInfo) (sum gpu.LinkTraffic, err error) {
	missing := func(why string) error {
		return &gpu.Error{Call: "nvmlDeviceGetFieldValues", Device: d.Index, Missing: true, Detail: why}
	}
	if !d.PCI.Valid || !nvmlReady() {
		return sum, missing("NVML does not answer")
	}
	dev, r := nvml.DeviceGetHandleByPciBusId(d.PCI.String())
	if r != nvml.SUCCESS {
		return sum, missing(nvml.ErrorString(r))
	}
	for i := range nvml.NVLINK_MAX_LINKS {
		if on, r := dev.GetNvLinkState(i); r != nvml.SUCCESS || on != nvml.FEATURE_ENABLED {
			continue
		}
		fields := []nvml.FieldValue{
			{FieldId: nvml.FI_DEV_NVLINK_THROUGHPUT_DATA_TX, ScopeId: uint32(i)},
			{FieldId: nvml.FI_DEV_NVLINK_THROUGHPUT_DATA_RX, ScopeId: uint32(i)},
		}
		if r := dev.GetFieldValues(fields); r != nvml.SUCCESS {
			return sum, missing(nvml.ErrorString(r))
		}
		for j, n := range []*uint64{&sum.Sent, &sum.Received} {
			if r := nvml.Return(fields[j].NvmlReturn); r != nvml.SUCCESS {
				return sum, missing(fmt.Sprintf("link %d: %s", i, nvml.ErrorString(r)))
			}
			const unit = 1 << 10
			*n += unit * binary.NativeEndian.Uint64(fields[j].Value[:])
		}
	}
	return sum, nil
}

// addLink counts lanes to the same end together.
func addLink(links []gpu.Link, l gpu.Link) []gpu.Link {
	for i := range links {
		if links[i].To == l.To && links[i].ToGPU == l.ToGPU {
			links[i].Count += l.Count
			return links
		}
	}
	return append(links, l)
}
