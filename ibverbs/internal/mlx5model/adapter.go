package mlx5model

import (
	"runtime"
	"sync/atomic"
	"time"

	"github.com/purerdma/purerdma/internal/mlx5prm"
)

// Rounds without work after which the adapter sleeps a little between two, and after
// which it sleeps longer.
const (
	awake  = 200
	drowsy = 4000
)

// work watches the registers of all contexts until there is none.
func (m *Model) work() {
	for idle := 0; ; idle++ {
		m.mu.Lock()
		if len(m.contexts) == 0 {
			m.running = false
			m.mu.Unlock()
			return
		}
		if m.round(time.Now()) {
			idle = 0
		}
		m.mu.Unlock()
		switch {
		case idle < awake:
			runtime.Gosched()
		case idle < drowsy:
			time.Sleep(20 * time.Microsecond)
		default:
			time.Sleep(500 * time.Microsecond)
		}
	}
}

// sendRegisters are where the doorbells of a page lie: two, each with two halves.
var sendRegisters = [...]uint32{
	mlx5prm.UARBlueFlame, mlx5prm.UARBlueFlame + mlx5prm.BlueFlameSize/2,
	mlx5prm.UARBlueFlame + mlx5prm.BlueFlameSize, mlx5prm.UARBlueFlame + mlx5prm.BlueFlameSize*3/2,
}

// round does what is to do, and says whether there was anything. A register holds one
// value, so one store may hide another: whatever rang in a page, all that may ring there
// are looked at, by their doorbell records.
func (m *Model) round(now time.Time) (busy bool) {
	for c := range m.contexts {
		if c.trapped {
			continue
		}
		for _, u := range c.uars {
			if c.rang(u.index, mlx5prm.UARArm) != 0 {
				busy = true
				for _, q := range c.cqs {
					q.look()
				}
			}
			sent := false
			for _, off := range sendRegisters {
				sent = c.rang(u.index, off) != 0 || sent
			}
			if !sent {
				continue
			}
			busy = true
			for _, q := range m.qps {
				if q.uar == u {
					q.run(now)
				}
			}
		}
	}
	for q := range m.held {
		q.notify()
	}
	for q := range m.watched {
		busy = q.run(now) || busy
	}
	return busy
}

// rang empties a register, and is what was in it: 0 is no doorbell.
func (c *context) rang(page, off uint32) uint64 {
	r := c.pages.register(page, off)
	if atomic.LoadUint64(r) == 0 {
		return 0
	}
	return atomic.SwapUint64(r, 0)
}
