package shmtransport

import (
	"errors"
	"testing"
	"unsafe"
)

// Both processes lay these over the same memory: nothing may move, and what one side writes is on lines of its own.
func TestLayout(t *testing.T) {
	var c control
	var h header
	for name, x := range map[string]struct{ got, want uintptr }{
		"sizeof cell":            {unsafe.Sizeof(cell{}), 16},
		"cell.word":              {unsafe.Offsetof(cell{}.word), 8},
		"sizeof control":         {unsafe.Sizeof(c), 4096},
		"control.cellsRead":      {unsafe.Offsetof(c.cellsRead), 0},
		"control.bytesRead":      {unsafe.Offsetof(c.bytesRead), 8},
		"control.far":            {unsafe.Offsetof(c.far), 128},
		"control.stamp":          {unsafe.Offsetof(c.stamp), 256},
		"control.receiverAsleep": {unsafe.Offsetof(c.receiverAsleep), 384},
		"control.senderAsleep":   {unsafe.Offsetof(c.senderAsleep), 512},
		"sizeof header":          {unsafe.Sizeof(h), 4096},
		"header.attached":        {unsafe.Offsetof(h.attached), 64},
		"header.barriers":        {unsafe.Offsetof(h.barriers), 68},
		"header.left":            {unsafe.Offsetof(h.left), 76},
	} {
		if x.got != x.want {
			t.Errorf("%s is %d, want %d", name, x.got, x.want)
		}
	}
	if n := (geometry{DefaultCells, DefaultData, 0}).size(); n != 4096+2*(4096+4096+2<<20) {
		t.Errorf("a connection takes %d bytes", n)
	}
}

func TestGeometry(t *testing.T) {
	for _, g := range []geometry{{minCells, minData, pageSize}, {DefaultCells, DefaultData, 0}, {maxCells, maxData, maxExtra}} {
		var b [headerText]byte
		g.encode(&b)
		got, err := decodeGeometry(b, g.size())
		if err != nil || got != g {
			t.Errorf("%+v became %+v, %v", g, got, err)
		}
		if _, err := decodeGeometry(b, g.size()+4096); !errors.Is(err, errGeometry) {
			t.Errorf("another size of memory: %v", err)
		}
		if n := maxPart(g.data); n > sizeMask || n*4 > g.data {
			t.Errorf("%+v: parts of %d bytes", g, n)
		}
	}
}

func FuzzGeometry(f *testing.F) {
	var b [headerText]byte
	g := geometry{DefaultCells, DefaultData, 0}
	g.encode(&b)
	f.Add(b[:], g.size())
	f.Fuzz(func(t *testing.T, text []byte, size int64) {
		if len(text) < headerText {
			return
		}
		g, err := decodeGeometry([headerText]byte(text[:headerText]), size)
		if err == nil && (g.check() != nil || g.size() != size) {
			t.Errorf("%+v in %d bytes", g, size)
		}
	})
}
