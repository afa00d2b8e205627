package mlx5model

import (
	"strings"
	"testing"
	"time"

	"github.com/purerdma/purerdma/ibverbs/driver"
	"github.com/purerdma/purerdma/ibverbs/driver/drivertest"
)

// TestConformance is what every driver does, done by ours on the model: between two
// contexts and within one, with both link layers, and completions of both sizes.
func TestConformance(t *testing.T) {
	for _, c := range []struct {
		name     string
		ethernet bool
		cqe      int
		both     bool // ends have one context
	}{{"InfiniBand", false, 64, false}, {"Ethernet", true, 128, true}} {
		if testing.Short() && c.ethernet {
			return
		}
		t.Run(c.name, func(t *testing.T) {
			m := New(Config{Ethernet: c.ethernet, Fault: func(s string) {
				if !strings.Contains(s, "overrun") { // which the suite means
					t.Error("model: " + s)
				}
			}})
			open := func(t testing.TB) driver.Context { return openOurs(t, NewLocal(m), m.config, c.cqe) }
			drivertest.Run(t, drivertest.Config{
				Open: func(t testing.TB) (a, b drivertest.End) {
					a = drivertest.End{Context: open(t), Port: 1, GIDIndex: len(m.config.gids()) - 1}
					b = a
					if !c.both {
						b.Context = open(t)
					}
					return a, b
				},
				Wait:          time.Minute,
				MaxMessage:    256 << 10,
				Rounds:        20,
				Timeout:       8,
				PostAllocates: true, // the model, which is in the same process
			})
			if n := m.Left(); n != 0 {
				t.Errorf("%d files are open", n)
			}
		})
	}
}
