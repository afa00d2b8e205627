//go:build !cgo

package nvidia

import "github.com/purerdma/purerdma/gpu"

// nvmlLinks knows nothing: the binding of NVML needs cgo.
func nvmlLinks(gpu.DeviceInfo) (links []gpu.Link, known bool) { return nil, false }

func nvmlTraffic(d gpu.DeviceInfo) (gpu.LinkTraffic, error) {
	return gpu.LinkTraffic{}, &gpu.Error{Call: "nvmlDeviceGetFieldValues", Device: d.Index, Missing: true, Detail: "this program was built without cgo"}
}
