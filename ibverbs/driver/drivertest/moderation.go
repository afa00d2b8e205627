package drivertest

import (
	"errors"
	"syscall"
	"testing"
	"time"

	"github.com/purerdma/purerdma/ibverbs/driver"
)

// testModeration has events wait for several completions, or for a time.
func testModeration(t *testing.T, cfg Config) {
	a, b := open(t, cfg)
	ch := newChannel(a)
	want := setup{}.withDefaults(cfg)
	a.build(want)
	b.build(want)
	q := a.newCQ(driver.CQConfig{Depth: 64, Channel: ch, Cookie: 7})
	moderate := func(count int, period time.Duration) error {
		q.control.Lock()
		defer q.control.Unlock()
		q.poll.Lock()
		defer q.poll.Unlock()
		return q.CQ.Moderate(count, int(period.Microseconds()))
	}
	if err := a.Context.Probe(driver.FeatureModerateCQ); err != nil {
		wantErr(t, "moderation without the feature", moderate(4, time.Millisecond), driver.ErrNotSupported)
		t.Skip(err)
	}
	for _, bad := range [][2]int{{-1, 1}, {1, -1}, {1 << 16, 1}, {1, 1 << 16}} {
		q.control.Lock()
		err := q.CQ.Moderate(bad[0], bad[1])
		q.control.Unlock()
		if !errors.Is(err, syscall.EINVAL) {
			t.Errorf("moderation by %v: %v", bad, err)
		}
	}
	a.closeQP()
	a.pairOn(q, a.newCQ(driver.CQConfig{Depth: 8}))
	a.init(want)
	a.join(want)
	b.join(want)
	write := func(n int) {
		t.Helper()
		for id := range uint64(n) {
			a.postSend(driver.SendWR{ID: id, Op: driver.OpWrite, Flags: driver.Signaled, SGL: []driver.SGE{a.sge(0, 8)}, Remote: b.remote(0)})
		}
		q.take(t, cfg, n)
	}
	long := 65 * time.Millisecond // some 0.4 ms below the longest that there can be
	attr, err := a.Context.QueryDevice()
	must(t, "query the device", err)
	if most := attr.Ext.ModerationUsec; most > 0 {
		long = min(long, time.Duration(most)*time.Microsecond)
	}

	must(t, "moderate", moderate(4, long))
	q.arm(t, false)
	begun := time.Now()
	write(1)
	event(t, cfg, ch, 7) // by time
	if d := time.Since(begun); d < long {
		t.Errorf("the event came after %v", d)
	}
	silent(t, cfg, ch)

	must(t, "moderate more", moderate(60000, long))
	q.arm(t, false)
	write(2)
	must(t, "end moderation", moderate(0, 0)) // which tells of what was held back
	event(t, cfg, ch, 7)
	q.arm(t, false)
	write(1)
	event(t, cfg, ch, 7)

	must(t, "moderate by count", moderate(3, long))
	q.arm(t, false)
	write(3)
	event(t, cfg, ch, 7)
	silent(t, cfg, ch) // once, though the time has passed too

	must(t, "moderate", moderate(100, long))
	q.arm(t, false)
	a.state(driver.StateErr)
	a.postSend(driver.SendWR{ID: 9, Op: driver.OpSend})
	event(t, cfg, ch, 7)
	q.take(t, cfg, 1)
}
