package shmtransport

import (
	"unsafe"

	"github.com/purerdma/purerdma/internal/offheap"
)

// ring is one direction's part of the memory.
type ring struct {
	control *control
	cells   []cell
	data    []byte
	lines   [][8]uint64 // data again
}

// views lays the structures over the memory. geometry was checked against its size, and mappings are aligned to a page.
func views(s offheap.Span, g geometry) (h *header, rings [2]ring) {
	at := func(off int) unsafe.Pointer { return unsafe.Pointer(&s.Bytes()[off]) }
	for i := range rings {
		off := pageSize + i*g.ring()
		data := off + pageSize + g.cellBytes()
		rings[i] = ring{
			control: (*control)(at(off)),
			cells:   unsafe.Slice((*cell)(at(off+pageSize)), g.cells),
			data:    unsafe.Slice((*byte)(at(data)), g.data),
			lines:   unsafe.Slice((*[8]uint64)(at(data)), g.data/64),
		}
	}
	return (*header)(at(0)), rings
}
