package gputest

import (
	"errors"
	"fmt"
	"os"
	"sort"
	"sync"

	"github.com/purerdma/purerdma/gpu"
)

// made is one thing that a context must free.
type made struct {
	kind string
	id   uint64
}

type context struct {
	d    *Driver
	info gpu.DeviceInfo

	mu      sync.Mutex
	closed  bool
	broken  error // every call fails with it from then on
	seq     uint64
	order   map[made]uint64
	made    map[made]func(*context)
	files   map[gpu.Allocation]*physical
	streams map[gpu.Stream]*stream
	events  map[gpu.Event]*event
	kernels map[gpu.Function]Kernel
}

// physical is memory without an address.
type physical struct {
	file *os.File
	n    int
	of   int // device, -1 for the host
}

func detail(format string, args ...any) string { return fmt.Sprintf(format, args...) }

func (c *context) Device() gpu.DeviceInfo { return c.info }

func (c *context) Do(f func(gpu.Context) error) error {
	if err := c.enter("Do"); err != nil {
		return err
	}
	return f(within{c})
}

// within is what Do gives.
type within struct{ *context }

func (w within) Close() error { return w.invalid("Close", "it is called within Do") }

func (c *context) enter(method string) error {
	c.mu.Lock()
	closed, broken := c.closed, c.broken
	c.mu.Unlock()
	switch {
	case closed:
		return &gpu.Error{Call: method, Device: c.info.Index, Cause: gpu.ErrClosed}
	case broken != nil:
		return broken
	}
	return c.d.enter(method)
}

// keep notes a thing and how to free it, and gives its number.
func (c *context) keep(kind string, id uint64, free func(*context)) uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.seq++
	if id == 0 {
		id = c.seq
	}
	if c.order == nil {
		c.order = map[made]uint64{}
	}
	c.made[made{kind, id}], c.order[made{kind, id}] = free, c.seq
	c.d.count(kind, 1)
	return id
}

// free frees a thing, once.
func (c *context) free(call, kind string, id uint64) error {
	c.mu.Lock()
	f := c.made[made{kind, id}]
	delete(c.made, made{kind, id})
	delete(c.order, made{kind, id})
	c.mu.Unlock()
	if f == nil {
		return c.invalid(call, "no such thing among the "+kind)
	}
	f(c)
	c.d.count(kind, -1)
	return nil
}

func (c *context) invalid(call, what string) error {
	return &gpu.Error{Call: call, Name: "INVALID_VALUE", Code: 1, Device: c.info.Index, Detail: what}
}

func (c *context) spoil(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.broken == nil {
		c.broken = err
	}
}

func (c *context) Close() error {
	c.mu.Lock()
	if c.closed {
		c.mu.Unlock()
		return nil
	}
	c.closed = true
	left := make([]made, 0, len(c.made))
	for m := range c.made {
		left = append(left, m)
	}
	sort.Slice(left, func(i, j int) bool { return c.order[left[i]] > c.order[left[j]] })
	c.mu.Unlock()
	err := c.d.enter("Close")
	for _, m := range left {
		err = errors.Join(err, c.free("Close", m.kind, m.id))
	}
	c.d.count("contexts", -1)
	return err
}
