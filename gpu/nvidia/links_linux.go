package nvidia

import "github.com/purerdma/purerdma/gpu"

// CUdevice_P2PAttribute.
const (
	p2pAccess       = 2
	p2pNativeAtomic = 3
)

// Links is the NVLinks of a device. NVML tells them all, in builds with cgo. CUDA
// tells only of GPUs that this process sees, without a count: those that take each
// other's atomics, which PCI does not carry.
func (driver) Links(device int) ([]gpu.Link, error) {
	l, err := cuda()
	if err != nil {
		return nil, err
	}
	d, err := l.device(device)
	if err != nil {
		return nil, err
	}
	if links, known := nvmlLinks(d); known {
		return links, nil
	}
	return cudaLinks(l, d)
}

func cudaLinks(l *library, d gpu.DeviceInfo) ([]gpu.Link, error) {
	all, err := driver{}.Devices()
	if err != nil {
		return nil, err
	}
	var links []gpu.Link
	for _, peer := range all {
		if peer.Index == d.Index || peer.PCI == d.PCI {
			continue
		}
		access, err := l.p2pAttribute(d.Index, peer.Index, p2pAccess)
		if err != nil {
			return nil, err
		}
		atomics, err := l.p2pAttribute(d.Index, peer.Index, p2pNativeAtomic)
		if err != nil {
			return nil, err
		}
		if access != 0 && atomics != 0 {
			links = append(links, gpu.Link{Kind: nvlink, To: peer.PCI, ToGPU: true})
		}
	}
	return links, nil
}

const nvlink = "NVLink"

// LinkTraffic is by NVML, in builds with cgo.
func (driver) LinkTraffic(device int) (gpu.LinkTraffic, error) {
	l, err := cuda()
	if err != nil {
		return gpu.LinkTraffic{}, err
	}
	d, err := l.device(device)
	if err != nil {
		return gpu.LinkTraffic{}, err
	}
	return nvmlTraffic(d)
}
