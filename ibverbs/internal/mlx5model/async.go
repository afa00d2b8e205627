package mlx5model

import (
	"syscall"

	"github.com/purerdma/purerdma/ibverbs/internal/uapi"
)

// Types of asynchronous events (enum ib_event_type).
const (
	eventCQErr       = 0
	eventQPFatal     = 1
	eventQPReqErr    = 2
	eventQPAccessErr = 3
	eventSRQLimit    = 15
	eventLastWQE     = 16
)

// asyncFile is the file that events about a new object go to: that which an attribute
// names, or else the context's first.
func (c *call) asyncFile(id uint16) (eventFile, error) {
	g := c.attrs[id]
	if g == nil {
		return c.async, nil
	}
	f := c.files.named(uint32(g.Data))
	if f == nil {
		return nil, syscall.EBADF
	}
	return f, nil
}

// event tells the program about an object of its own, by the user's handle.
func (c *context) event(f eventFile, kind uint32, user uint64) {
	if f == nil {
		return
	}
	e := uapi.AsyncEventDesc{Element: user, EventType: kind}
	if err := f.post(bytesOf(&e)); err != nil {
		c.m.logf("an asynchronous event is lost: %v", err)
		return
	}
	c.told[user]++
}

// forget is how many asynchronous events about an object the program has read. Those
// that it has not are gone.
func (c *context) forget(f eventFile, user uint64) uint32 {
	if f != nil {
		for _, record := range f.take() {
			if structOf[uapi.AsyncEventDesc](record).Element == user {
				c.told[user]--
			} else if err := f.post(record); err != nil {
				c.m.logf("an asynchronous event is lost: %v", err)
			}
		}
	}
	n := c.told[user]
	delete(c.told, user)
	return n
}
