package nvidia

import (
	"strconv"
	"strings"

	"github.com/purerdma/purerdma/gpu"
)

// Visible is the devices that CUDA shows to a process whose environment has
// CUDA_VISIBLE_DEVICES set to list, in that order and with their indices there.
// all is the devices of the machine in CUDA's own order, instances of a GPU (MIG)
// among them. It follows CUDA: an item is an index, or a UUID or the beginning of
// one that fits one device only; the first item that fits nothing ends the list
// without an error; a device named twice leaves none. An empty list is none. With
// an instance visible it is the only device.
func Visible(list string, all []gpu.DeviceInfo) []gpu.DeviceInfo {
	var shown []gpu.DeviceInfo
	seen := map[string]bool{}
	for item := range strings.SplitSeq(list, ",") {
		d, ok := named(strings.TrimSpace(item), all)
		if !ok {
			break
		}
		if seen[d.UUID] {
			return nil
		}
		seen[d.UUID] = true
		d.Index = len(shown)
		if d.MIG {
			d.Index = 0
			return []gpu.DeviceInfo{d}
		}
		shown = append(shown, d)
	}
	return shown
}

// named is the device that an item of the list means.
func named(item string, all []gpu.DeviceInfo) (gpu.DeviceInfo, bool) {
	if i, err := strconv.Atoi(item); err == nil {
		return at(i, all)
	}
	if old, ok := strings.CutPrefix(item, "MIG-GPU-"); ok {
		return oldInstance("GPU-"+old, all)
	}
	var fits []gpu.DeviceInfo
	for _, d := range all {
		if len(item) > len("GPU-") && strings.HasPrefix(strings.ToLower(d.UUID), strings.ToLower(item)) {
			fits = append(fits, d)
		}
	}
	if len(fits) != 1 {
		return gpu.DeviceInfo{}, false
	}
	return fits[0], true
}

// at is the GPU with an index. Instances have none; a GPU that is cut into
// instances keeps its own.
func at(index int, all []gpu.DeviceInfo) (gpu.DeviceInfo, bool) {
	for _, d := range all {
		if !d.MIG && d.Index == index {
			return d, true
		}
	}
	return gpu.DeviceInfo{}, false
}

// oldInstance is an instance by the name that drivers before 470 gave: UUID of
// the GPU, GPU instance, compute instance. They are found by that name only.
func oldInstance(name string, all []gpu.DeviceInfo) (gpu.DeviceInfo, bool) {
	for _, d := range all {
		if d.MIG && strings.EqualFold(strings.TrimPrefix(d.UUID, "MIG-"), name) {
			return d, true
		}
	}
	return gpu.DeviceInfo{}, false
}
