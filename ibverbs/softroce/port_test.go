package softroce

import (
	"testing"
	"time"

	"github.com/purerdma/purerdma/ibverbs/driver"
)

// A port that goes down says so to all contexts of its device, also when asked. What
// is under way waits for it as long as the retries last.
func TestPortDown(t *testing.T) {
	const flaps = 20
	inBubble(t, rigConfig{}, func(r *rig) {
		d, err := r.b.q.e.dev.Open()
		r.must(err)
		defer func() { r.must(d.Close()) }()
		second := &end{r: r, name: 'b', ctx: d}
		expect := func(state driver.PortState, event driver.EventType) {
			t.Helper()
			if p, err := r.b.ctx.QueryPort(1); err != nil || p.State != state {
				t.Errorf("port %v, %v, want %v", p.State, err, state)
			}
			r.b.wantEvent(event)
			second.wantEvent(event)
		}
		r.a.fill(1)
		for i := range uint64(flaps) {
			r.sim.SetPort(r.b.addr, false)
			expect(driver.PortDown, driver.EventPortErr)
			r.a.post(r.a.write(i, 0, 5000))
			time.Sleep(200 * time.Millisecond) // of 0.54 s
			r.sim.SetPort(r.b.addr, true)
			expect(driver.PortActive, driver.EventPortActive)
			r.a.one(i, driver.Success)
			r.same(0, 5000)
		}
		r.sim.SetPort(r.b.addr, false)
		r.a.post(r.a.write(flaps, 0, 5000), r.a.write(flaps+1, 0, 0))
		r.a.one(flaps, driver.RetryExcErr)
		r.a.one(flaps+1, driver.WRFlushErr)
		r.a.none(time.Minute)
	})
}

// The own port is down: nothing is sent, and the retries end.
func TestOwnPortDown(t *testing.T) {
	inBubble(t, rigConfig{}, func(r *rig) {
		r.sim.SetPort(r.a.addr, false)
		r.a.post(r.a.write(1, 0, 8))
		r.a.one(1, driver.RetryExcErr)
		r.a.wantEvent(driver.EventPortErr)
	})
}
