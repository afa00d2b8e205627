package softroce

import (
	"math"
	"syscall"
	"time"

	"github.com/purerdma/purerdma/ibverbs/driver"
)

// moderation holds back the event of an armed queue until count completions are
// there, or period has passed since the first. It is off unless both are set: a
// count alone could hold back the last completions for ever.
type moderation struct {
	count   int
	period  time.Duration
	waiting int // completions since the queue was armed whose event is held back
	timer   *time.Timer
}

// Moderate implements driver.CQ. What is held back already is told at once.
func (c *cq) Moderate(count, periodMicros int) error {
	if count < 0 || count > math.MaxUint16 || periodMicros < 0 || periodMicros > math.MaxUint16 {
		return syscall.EINVAL
	}
	c.mu.Lock()
	c.hold.count, c.hold.period = count, time.Duration(periodMicros)*time.Microsecond
	c.mu.Unlock()
	c.release()
	return nil
}

// holds reports whether the event of a completion has to wait. What failed is told
// at once. The caller holds the lock.
func (c *cq) holds(status driver.Status) bool {
	m := &c.hold
	if m.count <= 1 || m.period == 0 {
		return false
	}
	m.waiting++
	if m.waiting >= m.count || status != driver.Success {
		c.let()
		return false
	}
	if m.waiting > 1 {
		return true
	}
	if m.timer == nil {
		m.timer = time.AfterFunc(m.period, c.release)
	} else {
		m.timer.Reset(m.period)
	}
	return true
}

// let forgets what is held back. The caller holds the lock.
func (c *cq) let() {
	c.hold.waiting = 0
	if c.hold.timer != nil {
		c.hold.timer.Stop()
	}
}

// release tells of what is held back. A timer that fires late finds nothing, or tells
// of what came after it, earlier than it had to.
func (c *cq) release() {
	c.mu.Lock()
	wake := c.hold.waiting > 0 && c.arm != unarmed
	c.let()
	if wake {
		c.arm = unarmed
		c.channel.events.Put(c) // under the lock, so that Close drops it
	}
	c.mu.Unlock()
}
