package wire

// The CRC register as an element of GF(2)[x] modulo the polynomial of CRC-32,
// reflected: the highest bit is the coefficient of x^0.
const (
	poly = 0xedb88320
	one  = 1 << 31
)

// step is one zero byte through the register: times x^8.
func step(v uint32) uint32 {
	for range 8 {
		v = v>>1 ^ poly&-(v&1)
	}
	return v
}

// unstep undoes step: times x^−8. It is possible because the polynomial has a
// constant term.
func unstep(v uint32) uint32 {
	for range 8 {
		v = (v^poly&-(v>>31))<<1 | v>>31
	}
	return v
}

// mul is the product of two elements.
func mul(a, b uint32) uint32 {
	var r uint32
	for range 32 {
		r ^= b & -(a >> 31)
		a <<= 1
		b = b>>1 ^ poly&-(b&1)
	}
	return r
}
