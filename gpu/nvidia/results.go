package nvidia

import (
	"errors"
	"fmt"

	"github.com/purerdma/purerdma/gpu"
)

// Results (CUresult) that the code acts on.
const (
	success            = 0
	invalidValue       = 1
	notReady           = 600
	peerAlreadyEnabled = 704
)

// result is what is known of a CUresult.
type result struct {
	name  string
	cause error
}

// results is the results that programs meet, cuda.h.
var results = map[int]result{
	1:   {"CUDA_ERROR_INVALID_VALUE", nil},
	2:   {"CUDA_ERROR_OUT_OF_MEMORY", gpu.ErrOutOfMemory},
	3:   {"CUDA_ERROR_NOT_INITIALIZED", nil},
	4:   {"CUDA_ERROR_DEINITIALIZED", gpu.ErrClosed},
	34:  {"CUDA_ERROR_STUB_LIBRARY", gpu.ErrNoDriver},
	36:  {"CUDA_ERROR_CALL_REQUIRES_NEWER_DRIVER", errors.ErrUnsupported},
	46:  {"CUDA_ERROR_DEVICE_UNAVAILABLE", nil},
	100: {"CUDA_ERROR_NO_DEVICE", gpu.ErrNoDevice},
	101: {"CUDA_ERROR_INVALID_DEVICE", nil},
	200: {"CUDA_ERROR_INVALID_IMAGE", nil},
	201: {"CUDA_ERROR_INVALID_CONTEXT", nil},
	205: {"CUDA_ERROR_MAP_FAILED", nil},
	209: {"CUDA_ERROR_NO_BINARY_FOR_GPU", nil},
	214: {"CUDA_ERROR_ECC_UNCORRECTABLE", gpu.ErrBroken},
	217: {"CUDA_ERROR_PEER_ACCESS_UNSUPPORTED", errors.ErrUnsupported},
	218: {"CUDA_ERROR_INVALID_PTX", nil},
	220: {"CUDA_ERROR_NVLINK_UNCORRECTABLE", gpu.ErrBroken},
	222: {"CUDA_ERROR_UNSUPPORTED_PTX_VERSION", errors.ErrUnsupported},
	304: {"CUDA_ERROR_OPERATING_SYSTEM", nil},
	400: {"CUDA_ERROR_INVALID_HANDLE", nil},
	500: {"CUDA_ERROR_NOT_FOUND", nil},
	600: {"CUDA_ERROR_NOT_READY", nil},
	700: {"CUDA_ERROR_ILLEGAL_ADDRESS", gpu.ErrBroken},
	701: {"CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES", nil},
	702: {"CUDA_ERROR_LAUNCH_TIMEOUT", gpu.ErrBroken},
	704: {"CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED", nil},
	708: {"CUDA_ERROR_PRIMARY_CONTEXT_ACTIVE", nil},
	709: {"CUDA_ERROR_CONTEXT_IS_DESTROYED", gpu.ErrClosed},
	710: {"CUDA_ERROR_ASSERT", gpu.ErrBroken},
	712: {"CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED", nil},
	713: {"CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED", nil},
	715: {"CUDA_ERROR_ILLEGAL_INSTRUCTION", gpu.ErrBroken},
	716: {"CUDA_ERROR_MISALIGNED_ADDRESS", gpu.ErrBroken},
	719: {"CUDA_ERROR_LAUNCH_FAILED", gpu.ErrBroken},
	800: {"CUDA_ERROR_NOT_PERMITTED", gpu.ErrPermission},
	801: {"CUDA_ERROR_NOT_SUPPORTED", errors.ErrUnsupported},
	802: {"CUDA_ERROR_SYSTEM_NOT_READY", nil},
	803: {"CUDA_ERROR_SYSTEM_DRIVER_MISMATCH", gpu.ErrNoDriver},
	804: {"CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE", gpu.ErrNoDriver},
	805: {"CUDA_ERROR_MPS_CONNECTION_FAILED", nil},
	999: {"CUDA_ERROR_UNKNOWN", nil},
}

// failure is the error of a call that gave code, nil for success.
func failure(call string, code, device int, detail string, args ...any) error {
	if code == success {
		return nil
	}
	r, known := results[code]
	if !known {
		r.name = "CUDA_ERROR"
	}
	if len(args) > 0 {
		detail = fmt.Sprintf(detail, args...)
	}
	return &gpu.Error{Call: call, Name: r.name, Code: code, Device: device, Detail: detail, Cause: r.cause}
}
