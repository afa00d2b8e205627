//go:build !cgo

package nvidia

import "github.com/purerdma/purerdma/gpu"

// nvmlLinks knows nothing: the binding of NVML needs cgo.
func nvmlLinks(gpu.DeviceInfo) (links []gpu.Link, known bool) { return nil, false }
