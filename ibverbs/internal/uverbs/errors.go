package uverbs

import (
	"fmt"
	"syscall"

	"github.com/purerdma/purerdma/ibverbs/driver"
)

// FeatureIoctl is what a kernel lacks that cannot be used at all.
const FeatureIoctl driver.Feature = "verbs by ioctl"

// sinceIoctl is the first kernel with all methods that are needed: QP creation
// came last.
const sinceIoctl = "Linux 5.8"

// ResponseError is an answer of the kernel that cannot be right. Nothing of it
// was used. It matches EPROTO.
type ResponseError struct {
	What  string // "QP number"
	Value uint64
}

// Error names the field and its value.
func (e *ResponseError) Error() string {
	return fmt.Sprintf("the kernel answered with %s %#x, which cannot be", e.What, e.Value)
}

// Unwrap is EPROTO.
func (e *ResponseError) Unwrap() error { return syscall.EPROTO }

// ChangedError says that a device node is not the device that was listed, which
// was unplugged and replaced in between.
type ChangedError struct {
	Path      string
	Want, Got uint64 // device numbers
}

// Error names the node and both device numbers.
func (e *ChangedError) Error() string {
	if e.Got == 0 {
		return fmt.Sprintf("%s is not a character device", e.Path)
	}
	return fmt.Sprintf("%s is device %#x, but %#x was listed: list the devices again", e.Path, e.Got, e.Want)
}

// Unwrap is ENXIO.
func (e *ChangedError) Unwrap() error { return syscall.ENXIO }

// lacks turns the two errnos for "not there" into who lacks f; since is the
// first kernel with the method. Others are returned by gone.
func lacks(err error, f driver.Feature, since string) error {
	switch err {
	case syscall.EPROTONOSUPPORT:
		return &driver.NotSupportedError{Feature: f, By: driver.LacksKernel, Since: since, Err: err}
	case syscall.EOPNOTSUPP:
		return &driver.NotSupportedError{Feature: f, By: driver.LacksDevice, Err: err}
	}
	return gone(err)
}

// onlyLacks drops what a probe was refused for by whoever has the feature.
func onlyLacks(err error) error {
	if _, lacks := err.(*driver.NotSupportedError); lacks {
		return err
	}
	return nil
}

// gone turns EIO, which the kernel answers for a device that was removed, into
// ErrDeviceGone.
func gone(err error) error {
	if err == syscall.EIO {
		return driver.ErrDeviceGone
	}
	return err
}

// busy is gone for destroys: EBUSY is ErrBusy.
func busy(err error) error {
	if err == syscall.EBUSY {
		return driver.ErrBusy
	}
	return gone(err)
}
