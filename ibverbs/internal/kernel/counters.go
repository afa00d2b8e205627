package kernel

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"strconv"

	"github.com/purerdma/purerdma/ibverbs/driver"
)

// Counters implements driver.CounterReader: hw_counters of the port in sysfs. The
// kernel's driver names them; lifespan, how long it remembers values, is none.
func (c *Context) Counters(port int) ([]driver.Counter, error) {
	name := c.node.Info.Name
	dir := path.Join(classIB, name, "ports", strconv.Itoa(port), "hw_counters")
	entries, err := fs.ReadDir(c.w.Sys, dir)
	if errors.Is(err, fs.ErrNotExist) && port >= 1 && port <= c.node.Info.Ports {
		return nil, &driver.NotSupportedError{Feature: driver.FeatureCounters, By: driver.LacksDevice}
	}
	if err != nil {
		return nil, err
	}
	var cs []driver.Counter
	for _, e := range entries {
		if e.Name() == "lifespan" {
			continue
		}
		s, err := c.w.sysString(dir, e.Name())
		if err != nil {
			return nil, err
		}
		v, err := strconv.ParseUint(s, 10, 64)
		if err != nil {
			return nil, fmt.Errorf("counter %s of %s/%d is %q", e.Name(), name, port, s)
		}
		cs = append(cs, driver.Counter{Name: e.Name(), Value: v})
	}
	return cs, nil
}
