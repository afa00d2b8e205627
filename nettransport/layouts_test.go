package nettransport

import (
	"testing"

	"github.com/purerdma/purerdma/fifo"
	"github.com/purerdma/purerdma/socketboot"
)

// The layouts of the handshake and of the rings are numbered apart: each of the former has the rings of its NCCL versions, with a
// key for each device that the handshake can name.
func TestRingsOfLayout(t *testing.T) {
	for l, want := range map[socketboot.Layout]fifo.Layout{
		socketboot.Layout225:  fifo.Layout225,
		socketboot.Layout226:  fifo.Layout225,
		socketboot.Layout227:  fifo.Layout225,
		socketboot.Layout229:  fifo.Layout225,
		socketboot.Layout2297: fifo.Layout2297,
		socketboot.Layout230:  fifo.Layout230,
	} {
		c := Comm{layout: l}
		if got := c.fifoLayout(); got != want || got.Keys() != l.MaxDevs() {
			t.Errorf("%v: rings of %v with %d keys, want %v with %d", l, got, got.Keys(), want, l.MaxDevs())
		}
	}
}
