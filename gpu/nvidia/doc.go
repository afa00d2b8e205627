// Package nvidia is the plug-in for NVIDIA GPUs: CUDA's driver API, loaded at run
// time without cgo, and in builds with cgo NVML for what CUDA does not tell.
// Importing it registers it:
//
//	import _ "github.com/purerdma/purerdma/gpu/nvidia"
//
// Nothing is loaded before the first call. A machine without libcuda.so.1 gives
// gpu.ErrNoDriver. The library is the driver's, so no CUDA toolkit is needed;
// what an older driver lacks gives a *gpu.Error with Missing set at the call that
// needs it.
//
// It loads libraries made for glibc: a program that imports it is linked
// dynamically, also with CGO_ENABLED=0. Elsewhere than on Linux it registers
// nothing.
package nvidia
