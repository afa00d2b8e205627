package kernel

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"strconv"
	"syscall"

	"github.com/purerdma/purerdma/ibverbs/driver"
)

// Counters implements driver.CounterReader: the folders counters and hw_counters of
// the port in sysfs, of which a device may have either, both or none. lifespan, how
// long the kernel remembers values, is no counter.
func (c *Context) Counters(port int) ([]driver.Counter, error) {
	name := c.name()
	dir := path.Join(classIB, name, "ports", strconv.Itoa(port))
	if port < 1 || port > c.node.Info.Ports {
		return nil, fmt.Errorf("counters of %s/%d: %w", name, port, fs.ErrNotExist)
	}
	standard, err1 := c.w.counters(path.Join(dir, "counters"))
	for i := range standard {
		standard[i].Standard = true
	}
	own, err2 := c.w.counters(path.Join(dir, "hw_counters"))
	if errors.Is(err1, errNoFolder) && errors.Is(err2, errNoFolder) {
		return nil, &driver.NotSupportedError{Feature: driver.FeatureCounters, By: driver.LacksDevice}
	}
	var errs []error
	for _, err := range []error{err1, err2} {
		if err != nil && !errors.Is(err, errNoFolder) {
			errs = append(errs, err)
		}
	}
	return append(standard, own...), errors.Join(errs...)
}

// errNoFolder is a device without one of the folders.
var errNoFolder = errors.New("there is no such folder of counters")

// counters reads a folder with a number in each file. One that the device refuses to tell (EINVAL, EOPNOTSUPP of a virtual function) is
// left out; any other that cannot be read is in the error, and hides no other.
func (w *World) counters(dir string) (cs []driver.Counter, _ error) {
	entries, err := fs.ReadDir(w.Sys, dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, errNoFolder
	}
	errs := []error{err}
	for _, e := range entries {
		if e.Name() == "lifespan" {
			continue
		}
		s, err := w.sysString(dir, e.Name())
		switch {
		case err == nil && s == notAvailable, refused(err):
			continue
		case err != nil:
			errs = append(errs, err)
			continue
		}
		v, err := strconv.ParseUint(s, 10, 64)
		if err != nil {
			errs = append(errs, fmt.Errorf("counter %s is %q", path.Join(dir, e.Name()), s))
			continue
		}
		cs = append(cs, driver.Counter{Name: e.Name(), Value: v})
	}
	return cs, errors.Join(errs...)
}

func refused(err error) bool {
	return errors.Is(err, syscall.EINVAL) || errors.Is(err, syscall.EOPNOTSUPP) || errors.Is(err, syscall.ENODATA)
}

// notAvailable is what the kernel writes into a file of counters for a value that
// the device does not keep.
const notAvailable = "N/A (no PMA)"
