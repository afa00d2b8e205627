// Package gputest is a GPU driver for tests: device memory is in memory files,
// streams are goroutines, kernels are Go functions. Processes share its memory as
// they share a GPU's, by descriptors and by legacy handles, so everything above
// package gpu runs on any Linux machine. Calls can be made to fail one by one, and
// what was not freed is listed.
//
// Addresses are numbers of the driver's own: who uses one as if it were the
// host's crashes, as with a GPU.
package gputest
