package stores

import "encoding/binary"

// AMD64 is what an instruction may store from. The general registers have the numbers
// of the encoding.
type AMD64 struct {
	General [16]uint64
	Vector  [16][16]byte
}

// Decode reads the instruction that code begins with.
func (r *AMD64) Decode(code []byte) (Store, error) {
	d := decoder{code: code}
	data, ok := d.store(r)
	if !ok || d.at > len(code) {
		return Store{}, &UnknownError{code}
	}
	return Store{d.at, data}, nil
}

// decoder is a walk through an instruction.
type decoder struct {
	code   []byte
	at     int
	prefix byte // the last of 0x66, 0xf2 and 0xf3, 0 if there was none
	rex    byte
	reg    int // of ModRM
}

// next is 0 behind the end.
func (d *decoder) next() byte {
	d.at++
	if d.at > len(d.code) {
		return 0
	}
	return d.code[d.at-1]
}

// prefixes skips them, and is the byte behind.
func (d *decoder) prefixes() byte {
	for {
		switch b := d.next(); b {
		case 0x66, 0xf2, 0xf3:
			d.prefix = b
		case 0x26, 0x2e, 0x36, 0x3e, 0x64, 0x65, 0x67:
		default:
			if b&0xf0 != 0x40 {
				return b
			}
			d.rex = b
			return d.next()
		}
	}
}

// memory skips the operand in memory. It is false if the operand is a register.
func (d *decoder) memory() bool {
	m := d.next()
	mod, rm := m>>6, m&7
	d.reg = int(m>>3&7 | d.rex<<1&8)
	if mod == 3 {
		return false
	}
	base := rm
	if rm == 4 {
		base = d.next() & 7
	}
	switch {
	case mod == 1:
		d.at++
	case mod == 2, mod == 0 && base == 5: // which has no base, or the instruction pointer if there is no SIB byte
		d.at += 4
	}
	return true
}

// width is of an operand whose size the prefixes choose.
func (d *decoder) width() int {
	switch {
	case d.rex&8 != 0:
		return 8
	case d.prefix == 0x66:
		return 2
	}
	return 4
}

func (d *decoder) store(r *AMD64) ([]byte, bool) {
	op := d.prefixes()
	if op == 0x0f {
		return d.extended(r)
	}
	if op != 0x88 && op != 0x89 && op != 0xc6 && op != 0xc7 || !d.memory() {
		return nil, false
	}
	switch {
	case op == 0x88 && d.rex == 0 && d.reg >= 4:
		return []byte{byte(r.General[d.reg-4] >> 8)}, true
	case op == 0x88:
		return []byte{byte(r.General[d.reg])}, true
	case op == 0x89:
		return little(r.General[d.reg], d.width()), true
	case d.reg&7 != 0: // not MOV
		return nil, false
	case op == 0xc6:
		return []byte{d.next()}, true
	}
	n := min(d.width(), 4)
	var v [4]byte
	for i := range v[:n] {
		v[i] = d.next()
	}
	return little(uint64(int64(int32(binary.LittleEndian.Uint32(v[:])))), d.width()), true
}

// extended reads what is behind 0x0f.
func (d *decoder) extended(r *AMD64) ([]byte, bool) {
	op := d.next()
	if !d.memory() {
		return nil, false
	}
	v := &r.Vector[d.reg]
	type key struct{ op, prefix byte }
	switch (key{op, d.prefix}) {
	case key{0xc3, 0}: // MOVNTI
		return little(r.General[d.reg], d.width()), true
	case key{0x11, 0}, key{0x11, 0x66}, key{0x29, 0}, key{0x29, 0x66}, key{0x2b, 0}, key{0x2b, 0x66}, // MOVUPS to MOVNTPD
		key{0x7f, 0x66}, key{0x7f, 0xf3}, key{0xe7, 0x66}: // MOVDQA, MOVDQU, MOVNTDQ
		return v[:], true
	case key{0x13, 0}, key{0x13, 0x66}, key{0xd6, 0x66}, key{0x11, 0xf2}: // MOVLPS, MOVLPD, MOVQ, MOVSD
		return v[:8], true
	case key{0x17, 0}, key{0x17, 0x66}: // MOVHPS, MOVHPD
		return v[8:], true
	case key{0x11, 0xf3}: // MOVSS
		return v[:4], true
	case key{0x7e, 0x66}: // MOVD, MOVQ
		if d.rex&8 == 0 {
			return v[:4], true
		}
		return v[:8], true
	}
	return nil, false
}

func little(v uint64, n int) []byte { return binary.LittleEndian.AppendUint64(nil, v)[:n] }
