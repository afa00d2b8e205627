package p2ptransport

import (
	"fmt"
	"strings"

	"github.com/purerdma/purerdma/gpu"
	"github.com/purerdma/purerdma/topo"
	"github.com/purerdma/purerdma/transport/driver"
)

// CanConnect goes by NCCL's rules (p2pCanConnect), of which each end sees the same
// side: equal hosts, distance, peer access.
func (t *Transport) CanConnect(self, peer *driver.PeerInfo) driver.Verdict {
	no := func(format string, args ...any) driver.Verdict {
		return driver.Verdict{Reason: fmt.Sprintf(format, args...)}
	}
	switch {
	case !self.HasGPU() && !peer.HasGPU():
		return no("neither rank has a GPU")
	case !self.HasGPU() || !peer.HasGPU():
		return no("one of the ranks has no GPU")
	case !self.SameHost(peer):
		return no("different hosts")
	}
	sharable := self.SameProcess(peer) && !t.cfg.NoDirect
	if !sharable {
		if why := t.apart(self, peer); why != "" {
			return no("%s", why)
		}
	}
	way := t.way(sharable)
	if self.GPUUUID == peer.GPUUUID {
		t.once.Do(func() {
			t.log.Info("ranks share a GPU", "gpu", t.cfg.GPU.Device().Name, "rank", self.Rank, "peer", peer.Rank)
		})
		if !sharable && !t.mps {
			return driver.Verdict{OK: true, Reason: way + ", the same GPU, " + turns}
		}
		return driver.Verdict{OK: true, Reason: way + ", the same GPU"}
	}
	if t.cfg.Disable {
		return no("NCCL_P2P_DISABLE=1")
	}
	path, known := t.distance(peer)
	if known && path > t.level() {
		return no("%v lies between the GPUs, and at most %v is allowed", path, t.level())
	}
	mid, why, err := t.between(peer)
	switch {
	case err != nil:
		return no("the GPUs cannot be asked: %v", err)
	case why != "":
		return no("%s", why)
	case mid != nil:
		return driver.Verdict{OK: true, Reason: fmt.Sprintf("INTERMEDIATE, %v, on GPU %d between them", path, mid.Index)}
	}
	index, visible, err := t.visible(peer)
	switch {
	case err != nil:
		return no("the GPUs cannot be asked: %v", err)
	case !visible:
		// The driver tells nothing of a GPU that is hidden from this process; since
		// CUDA 10.1 it can be reached all the same.
		return driver.Verdict{OK: true, Reason: way + ", the peer's GPU is hidden from this process"}
	}
	can, err := t.cfg.Driver.CanAccessPeer(t.cfg.GPU.Device().Index, index)
	if err == nil && can {
		can, err = t.cfg.Driver.CanAccessPeer(index, t.cfg.GPU.Device().Index)
	}
	switch {
	case err != nil:
		return no("peer access cannot be asked: %v", err)
	case !can:
		return no("the GPUs do not reach each other's memory")
	}
	reasons := []string{way}
	if known {
		reasons = append(reasons, path.String())
	}
	if !sharable && t.kind == legacy {
		reasons = append(reasons, "by legacy handle: "+t.why)
	}
	return driver.Verdict{OK: true, Reason: strings.Join(reasons, ", ")}
}

// way is NCCL's word for how this rank's memory gets to the peer.
func (t *Transport) way(sharable bool) string {
	switch {
	case sharable:
		return "DIRECT"
	case t.kind == descriptor:
		return "CUMEM"
	}
	return "IPC"
}

// turns is why kernels of two processes on one GPU must not wait for each other.
const turns = "on which processes take turns without MPS: copies move the data, and no kernels that wait"

// apart is why two processes cannot share GPU memory, "" if they can.
func (t *Transport) apart(self, peer *driver.PeerInfo) string {
	switch {
	case self.BootID != peer.BootID:
		return "different boots of the machine, though the host is called the same"
	case self.UID != peer.UID:
		return "different users"
	case t.kind == descriptor && self.NetNS != peer.NetNS:
		return "different network namespaces: descriptors of memory do not get across"
	case t.kind == none:
		return "GPU memory cannot be shared: " + t.why
	}
	return ""
}

func (t *Transport) level() topo.Path {
	if t.cfg.Level == topo.LOC {
		return topo.PXB
	}
	return t.cfg.Level
}

// distance is what lies between the rank's GPU and the peer's.
func (t *Transport) distance(peer *driver.PeerInfo) (topo.Path, bool) {
	mine, theirs, known := t.places(peer)
	if !known {
		return topo.DIS, false
	}
	return t.cfg.System.Path(mine, theirs), true
}

// places is the rank's GPU and the peer's in the System, as far as they are known there.
func (t *Transport) places(peer *driver.PeerInfo) (mine, theirs topo.Device, known bool) {
	if t.cfg.System == nil {
		return mine, theirs, false
	}
	for _, d := range t.cfg.System.Devices {
		if d.Kind != topo.GPU || !d.PCI.Valid {
			continue
		}
		if d.PCI == t.cfg.GPU.Device().PCI {
			mine = d
		}
		if uint64(d.PCI.Int64()) == peer.BusID {
			theirs = d
		}
	}
	return mine, theirs, mine.Name != "" && theirs.Name != ""
}

// visible is the index that the peer's GPU has in this process.
func (t *Transport) visible(peer *driver.PeerInfo) (index int, ok bool, err error) {
	devices, err := t.cfg.Driver.Devices()
	if err != nil {
		return 0, false, err
	}
	for _, d := range devices {
		if uuid(d) == peer.GPUUUID {
			return d.Index, true, nil
		}
	}
	return 0, false, nil
}

// uuid is the 16 bytes of a GPU's or an instance's UUID.
func uuid(d gpu.DeviceInfo) (b [16]byte) {
	digits := strings.NewReplacer("GPU-", "", "MIG-", "", "-", "").Replace(d.UUID)
	for i := 0; i < len(b) && 2*i+2 <= len(digits); i++ {
		if _, err := fmt.Sscanf(digits[2*i:2*i+2], "%02x", &b[i]); err != nil {
			return [16]byte{}
		}
	}
	return b
}

// reads reports whether the receiver fetches (p2pGetInfo).
func (t *Transport) reads(self, peer *driver.PeerInfo) bool {
	if t.cfg.Read != nil {
		return *t.cfg.Read
	}
	const ampere = 80
	path, known := t.distance(peer)
	return known && path == topo.NVL && self.ComputeCap == ampere && peer.ComputeCap == ampere
}
