//go:build hw && linux

package rxe

import (
	"testing"

	"github.com/purerdma/purerdma/ibverbs/driver/drivertest"
)

// What every driver does alike, on one device and between two.
func TestConformance(t *testing.T) {
	for name, across := range map[string]bool{"one device": false, "across": true} {
		t.Run(name, func(t *testing.T) {
			r := random(t)
			a, b := pair(t, r, across)
			drivertest.Run(t, drivertest.Config{
				Open: func(t testing.TB) (drivertest.End, drivertest.End) { return conformanceEnd(t, a), conformanceEnd(t, b) },
				Wait: patience,
				// Emulation moves a few MB/s.
				MaxMessage: 64 << 10,
				Rounds:     20,
				Seed:       r.Uint64() | 1,
			})
		})
	}
}

func conformanceEnd(t testing.TB, p place) drivertest.End {
	t.Helper()
	return drivertest.End{Context: get(p.dev.Open())(t), Port: 1, GIDIndex: p.gid.Index}
}
