// Package uverbs speaks to the kernel through a uverbs file
// (/dev/infiniband/uverbsN): it is the only package of the module that touches
// one. All commands go by RDMA_VERBS_IOCTL, also those of the old write
// interface and the doorbell of drivers whose queues are in shared memory; no
// write(2) is made, because that one stops working after setuid.
//
// A Device is an open file with its context. Its methods are one command each,
// typed, and return what package driver declares. What a driver adds to a
// command goes through a UHW.
//
// # Memory
//
// Commands point to their payloads by numbers, which the collector does not
// see, and a Go stack moves when it grows. So every command is built in a frame
// of off-heap memory, with copies in and out. Frames are reused and belong to
// their Device.
//
// # Errors
//
// An errno comes bare, with these exceptions. EPROTONOSUPPORT means that the
// kernel does not know the method and EOPNOTSUPP that the device does not have
// it: both are a *driver.NotSupportedError. EBUSY of a destroy is
// driver.ErrBusy, EIO driver.ErrDeviceGone. What a broken kernel answers
// (counts, handles, lengths that cannot be) is a *ResponseError.
//
// # Concurrency
//
// Methods of a Device may be called at the same time, except that none comes
// during or after Close. The tear-down order is the caller's: destroy the
// object, release its ring, close the event files, close the Device. The kernel
// keeps the objects of a closed file while one of its rings is mapped.
package uverbs
