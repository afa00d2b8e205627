package kernel

import (
	"errors"
	"fmt"
	"io/fs"
	"syscall"

	"github.com/purerdma/purerdma/ibverbs/driver"
	"github.com/purerdma/purerdma/ibverbs/internal/uverbs"
)

// devFolder is where udev puts the nodes, below /dev.
const devFolder = "infiniband"

// noUverbs says that a device has no node: the kernel does not offer verbs.
func noUverbs(name string) error {
	return &driver.Error{Op: "list", Device: name, Err: driver.ErrNoDevice,
		Hint: "the kernel offers no verbs for it: modprobe ib_uverbs"}
}

// noProvider says that nobody here can drive the device.
func noProvider(n Node) error {
	f := driver.Feature(fmt.Sprintf("a device of the kernel driver %s (driver id %d)", n.Info.Driver, n.DriverID))
	return &driver.Error{Op: "open", Device: n.Info.Name,
		Err:  &driver.NotSupportedError{Feature: f, By: driver.LacksDriver},
		Hint: "a device of another driver, or one in software, has to be used"}
}

// openError adds to a failure to open what to do about it.
func (w *World) openError(n Node, err error) error {
	var nodeChanged *uverbs.ChangedError
	if e, ok := err.(*driver.Error); ok && e.Op == "" { // a provider that says what to do
		return &driver.Error{Op: "open", Device: n.Info.Name, Err: e.Err, Hint: e.Hint}
	}
	hint := ""
	switch {
	case errors.As(err, &nodeChanged): // says it itself
	case errors.Is(err, fs.ErrNotExist):
		hint = w.missingNode(n.Path)
	case errors.Is(err, syscall.EPERM):
		hint = "the device cgroup of a container mostly forbids it: pass the node in with --device=" + n.Path
	case errors.Is(err, fs.ErrPermission):
		hint = "give this user read and write access to " + n.Path + ", by a udev rule or its group"
	case errors.Is(err, driver.ErrDeviceGone), errors.Is(err, syscall.ENXIO), errors.Is(err, syscall.ENODEV):
		hint = "it was unplugged or its driver unloaded: list the devices again"
	case errors.Is(err, syscall.EBUSY):
		hint = "it is in exclusive use, or its driver is being unloaded"
	case errors.Is(err, syscall.EMFILE):
		hint = "the limit of open files is reached: ulimit -n, LimitNOFILE= of the service"
	}
	return &driver.Error{Op: "open", Device: n.Info.Name, Err: err, Hint: hint}
}

// missingNode tells a container from a machine without udev.
func (w *World) missingNode(path string) string {
	if _, err := fs.Stat(w.Dev, devFolder); errors.Is(err, fs.ErrNotExist) {
		return path + " is not there although the kernel has the device: in a container pass it in with --device=" +
			w.DevDir + "/" + devFolder + ", elsewhere udev has not made it"
	}
	return path + " is not there although the kernel has the device: in a container pass it in with --device=" + path
}
