package mlx5model

import "github.com/purerdma/purerdma/ibverbs/internal/uapi"

// Types of asynchronous events (enum ib_event_type).
const (
	eventCQErr       = 0
	eventQPAccessErr = 3
	eventSRQLimit    = 15
	eventLastWQE     = 16
)

// event tells the program about an object of its own, by the user's handle.
func (c *context) event(kind uint32, user uint64) {
	if c.async == nil {
		return
	}
	e := uapi.AsyncEventDesc{Element: user, EventType: kind}
	if err := c.async.post(bytesOf(&e)); err != nil {
		c.m.logf("an asynchronous event is lost: %v", err)
		return
	}
	c.told[user]++
}

// forget is how many asynchronous events about an object the program has read. Those
// that it has not are gone.
func (c *context) forget(user uint64) uint32 {
	if c.async != nil {
		for _, record := range c.async.take() {
			if structOf[uapi.AsyncEventDesc](record).Element == user {
				c.told[user]--
			} else if err := c.async.post(record); err != nil {
				c.m.logf("an asynchronous event is lost: %v", err)
			}
		}
	}
	n := c.told[user]
	delete(c.told, user)
	return n
}
