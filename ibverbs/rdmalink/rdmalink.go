// Package rdmalink makes and removes the kernel's software devices, as rdma link does, and reads and sets to which network
// namespaces RDMA devices belong, as rdma system does. Changes need CAP_NET_ADMIN in the first network namespace. It is Linux's
// alone: elsewhere every call is errors.ErrUnsupported.
package rdmalink

import (
	"errors"
	"fmt"
	"syscall"

	"github.com/purerdma/purerdma/ibverbs"
)

// Kinds of devices, by the names of their kernel modules without rdma_.
const (
	SoftRoCE  = "rxe"
	SoftIWARP = "siw"
)

// Modes of RDMA network namespaces.
const (
	Shared    = "shared"    // each device is in all namespaces
	Exclusive = "exclusive" // each device is in one
)

// Add makes a device of a kind on a net device. When it returns the kernel has the device; its node may take udev a moment. A net
// device has one of each kind at most: EEXIST. The kind's module is loaded if the kernel may.
func Add(name, kind, netDevice string) error {
	if name == "" || netDevice == "" {
		return &ibverbs.Error{Op: "add " + kind + " device", Device: name, Err: syscall.EINVAL, Hint: "it takes the names of both, the device and its net device"}
	}
	return explain("add "+kind+" device on "+netDevice, name, add(name, kind, netDevice))
}

// Delete removes a software device. It waits until every process has closed it; the kernel refuses devices of hardware (EINVAL).
func Delete(name string) error { return explain("delete device", name, del(name)) }

// Mode is Shared or Exclusive.
func Mode() (string, error) {
	m, err := mode()
	return m, explain("read namespace mode", "", err)
}

// SetMode changes the mode. While another network namespace than the first exists the kernel refuses (EBUSY).
func SetMode(m string) error {
	if m != Shared && m != Exclusive {
		return &ibverbs.Error{Op: "set namespace mode", Err: syscall.EINVAL, Hint: fmt.Sprintf("%q is neither %s nor %s", m, Shared, Exclusive)}
	}
	return explain("set namespace mode", "", setMode(m))
}

func explain(op, name string, err error) error {
	if err == nil {
		return nil
	}
	hint := ""
	switch {
	case errors.Is(err, syscall.EPERM):
		hint = "it takes CAP_NET_ADMIN"
	case errors.Is(err, syscall.EEXIST):
		hint = "the name is taken, or the net device has such a device: rdma link shows it"
	case errors.Is(err, syscall.EBUSY):
		hint = "another network namespace is in use"
	case errors.Is(err, syscall.ENODEV):
		hint = "there is no net device of this name"
	case errors.Is(err, syscall.EINVAL):
		hint = "the kernel does not have this kind of device, or it is not one in software: modprobe rdma_rxe"
	case errors.Is(err, syscall.EPROTONOSUPPORT):
		hint = "the kernel has no RDMA: modprobe ib_core"
	}
	return &ibverbs.Error{Op: op, Device: name, Err: err, Hint: hint}
}
