package p2ptransport

import (
	"fmt"

	"github.com/purerdma/purerdma/gpu"
	"github.com/purerdma/purerdma/topo"
	"github.com/purerdma/purerdma/transport/driver"
)

// between is the GPU on which this rank and the peer meet, where NVLink joins their GPUs over a third (NCCL's INTERMEDIATE): both pieces
// lie there. why is why they cannot, "" if they can or there is no such GPU.
func (t *Transport) between(peer *driver.PeerInfo) (mid *gpu.DeviceInfo, why string, err error) {
	mine, theirs, known := t.places(peer)
	if !known || t.cfg.System.Path(mine, theirs) != topo.NVB {
		return nil, "", nil
	}
	d, _ := t.cfg.System.Between(mine, theirs)
	if t.cfg.NoIntermediate {
		return nil, fmt.Sprintf("NVLink joins the GPUs over %s, and NCCL_NVB_DISABLE=1", d.Name), nil
	}
	devices, err := t.cfg.Driver.Devices()
	if err != nil {
		return nil, "", err
	}
	self, other := t.cfg.GPU.Device().Index, -1
	for i := range devices {
		if devices[i].PCI == d.PCI {
			mid = &devices[i]
		}
		if uuid(devices[i]) == peer.GPUUUID {
			other = devices[i].Index
		}
	}
	if mid == nil {
		return nil, fmt.Sprintf("the GPU between them, at %v, is hidden from this process", d.PCI), nil
	}
	for _, from := range []int{self, other} {
		if from < 0 {
			continue // the peer's GPU is hidden: the peer asks for itself
		}
		can, err := t.cfg.Driver.CanAccessPeer(from, mid.Index)
		if err != nil {
			return nil, "", err
		}
		if !can {
			return nil, fmt.Sprintf("GPU %d does not reach the memory of GPU %d between them", from, mid.Index), nil
		}
	}
	return mid, "", nil
}
