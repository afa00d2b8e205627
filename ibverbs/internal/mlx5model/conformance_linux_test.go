package mlx5model

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/purerdma/purerdma/ibverbs/driver"
	"github.com/purerdma/purerdma/ibverbs/driver/drivertest"
)

// TestConformance is what every driver does, done by ours on the model: between two
// contexts and within one, with completions of both sizes.
func TestConformance(t *testing.T) {
	for _, c := range []struct {
		cqe  int
		both bool // ends have one context
	}{{64, false}, {128, true}} {
		if testing.Short() && c.both {
			return
		}
		t.Run(fmt.Sprintf("completions of %d bytes", c.cqe), func(t *testing.T) {
			m := New(Config{Fault: func(s string) {
				if !strings.Contains(s, "overrun") { // which the suite means
					t.Error("model: " + s)
				}
			}})
			open := func(t testing.TB) driver.Context { return openOurs(t, NewLocal(m), c.cqe) }
			drivertest.Run(t, drivertest.Config{
				Open: func(t testing.TB) (a, b drivertest.End) {
					a = drivertest.End{Context: open(t), Port: 1}
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
