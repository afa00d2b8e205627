package stores

import "encoding/binary"

// ARM64 is what an instruction may store from.
type ARM64 struct {
	General [31]uint64
	Vector  [32][16]byte
}

// Decode reads the instruction that code begins with. Forms that change their base
// register are not known.
func (r *ARM64) Decode(code []byte) (Store, error) {
	if len(code) >= 4 {
		if data, ok := r.store(binary.LittleEndian.Uint32(code)); ok {
			return Store{4, data}, nil
		}
	}
	return Store{}, &UnknownError{code}
}

func (r *ARM64) store(w uint32) ([]byte, bool) {
	rt := int(w & 31)
	size, opc := w>>30, w>>22&3
	unscaled, indexed := w&0x00200c00 == 0, w&0x00200c00 == 0x00200800
	switch {
	case w&0x3f000000 == 0x39000000 && opc == 0, // STR with an offset, STUR, STR with an index
		w&0x3f000000 == 0x38000000 && opc == 0 && (unscaled || indexed),
		w&0x3ffffc00 == 0x089ffc00: // STLR
		return r.general(rt, 1<<size), true
	case w&0x3f000000 == 0x3d000000, w&0x3f000000 == 0x3c000000 && (unscaled || indexed):
		switch {
		case opc == 0:
			return r.Vector[rt][:1<<size], true
		case opc == 2 && size == 0:
			return r.Vector[rt][:], true
		}
	case w&0x3ac00000 == 0x28000000: // STNP, STP with an offset
		return r.pair(w, rt, int(w>>10&31))
	case w&0xbfff0000 == 0x0c000000 && w>>30&1 == 1 && w>>10&3 == 3: // ST1 and ST4 of whole registers, by doublewords
		return r.several(rt, w>>12&15)
	}
	return nil, false
}

// general is 0 for the number that stands for none.
func (r *ARM64) general(i, n int) []byte {
	var v uint64
	if i < len(r.General) {
		v = r.General[i]
	}
	return little(v, n)
}

func (r *ARM64) pair(w uint32, a, b int) ([]byte, bool) {
	opc := w >> 30
	switch {
	case w>>26&1 == 1 && opc < 3: // vectors
		n := 4 << opc
		return append(append([]byte(nil), r.Vector[a][:n]...), r.Vector[b][:n]...), true
	case w>>26&1 == 0 && opc&1 == 0:
		n := 4 << (opc >> 1)
		return append(r.general(a, n), r.general(b, n)...), true
	}
	return nil, false
}

// several is structures of registers: one after the other, or four interleaved.
func (r *ARM64) several(rt int, op uint32) (data []byte, ok bool) {
	v := func(i int) []byte { return r.Vector[(rt+i)%len(r.Vector)][:] }
	if op == 0 {
		for half := 0; half < 16; half += 8 {
			for i := range 4 {
				data = append(data, v(i)[half:half+8]...)
			}
		}
		return data, true
	}
	n, ok := map[uint32]int{7: 1, 10: 2, 6: 3, 2: 4}[op]
	for i := range n {
		data = append(data, v(i)...)
	}
	return data, ok
}
