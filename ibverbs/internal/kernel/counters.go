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
	standard, err := c.w.counters(path.Join(dir, "counters"))
	missing := errors.Is(err, fs.ErrNotExist)
	if err != nil && !missing {
		return nil, err
	}
	for i := range standard {
		standard[i].Standard = true
	}
	own, err := c.w.counters(path.Join(dir, "hw_counters"))
	if missing && errors.Is(err, fs.ErrNotExist) {
		return nil, &driver.NotSupportedError{Feature: driver.FeatureCounters, By: driver.LacksDevice}
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	return append(standard, own...), nil
}

// counters reads a folder with a number in each file. One that the device refuses to
// tell (EINVAL, EOPNOTSUPP of a virtual function) is left out: it hides no other.
func (w *World) counters(dir string) ([]driver.Counter, error) {
	entries, err := fs.ReadDir(w.Sys, dir)
	if err != nil {
		return nil, err
	}
	var cs []driver.Counter
	for _, e := range entries {
		if e.Name() == "lifespan" {
			continue
		}
		s, err := w.sysString(dir, e.Name())
		if err != nil {
			if refused(err) {
				continue
			}
			return nil, err
		}
		if s == notAvailable {
			continue
		}
		v, err := strconv.ParseUint(s, 10, 64)
		if err != nil {
			return nil, fmt.Errorf("counter %s is %q", path.Join(dir, e.Name()), s)
		}
		cs = append(cs, driver.Counter{Name: e.Name(), Value: v})
	}
	return cs, nil
}

func refused(err error) bool {
	return errors.Is(err, syscall.EINVAL) || errors.Is(err, syscall.EOPNOTSUPP) || errors.Is(err, syscall.ENODATA)
}

// notAvailable is what the kernel writes into a file of counters for a value that
// the device does not keep.
const notAvailable = "N/A (no PMA)"
