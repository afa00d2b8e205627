package wire

// Reason is why a packet is no RoCE packet. It is the error of [Parse] and
// counts as an index of counters: 0 ≤ Reason < Reasons.
type Reason uint8

// Reasons, in the order in which they are looked for.
const (
	Short      Reason = iota // less than BTH and ICRC
	BadVersion               // TVer is not 0
	BadOpcode                // none that is spoken here
	Truncated                // headers and padding do not fit
	Unaligned                // not a multiple of 4 bytes
	Surplus                  // a payload after an opcode that has none
	BadICRC                  // for the counter of the caller, who checks it
	Reasons    = iota
)

var reasons = [Reasons]string{
	"packet shorter than its first header",
	"transport version is not 0",
	"unknown opcode",
	"packet shorter than its headers and padding",
	"packet length is not a multiple of 4",
	"payload where the opcode has none",
	"ICRC is wrong",
}

// Error is the reason in words.
func (r Reason) Error() string {
	if int(r) < Reasons {
		return reasons[r]
	}
	return "unknown reason"
}

// Packet is a view on the bytes of one packet whose layout is known to be
// right. It is a small value: pass it on, do not take its address.
type Packet struct {
	b     []byte
	shape *shape
	end   int // of the payload
}

// Parse looks at one packet, as it came in one UDP datagram or one segment. The
// error is a [Reason]. The Packet refers to b.
func Parse(b []byte) (Packet, error) {
	if len(b) < BTHSize+ICRCSize {
		return Packet{}, Short
	}
	h := BTH(b)
	if h.Version() != 0 {
		return Packet{}, BadVersion
	}
	s := &shapes[h.Opcode()]
	if s.size == 0 {
		return Packet{}, BadOpcode
	}
	end := len(b) - ICRCSize - h.Pad()
	switch {
	case end < int(s.size):
		return Packet{}, Truncated
	case len(b)%4 != 0:
		return Packet{}, Unaligned
	case s.flags&hasData == 0 && len(b) != int(s.size)+ICRCSize:
		return Packet{}, Surplus
	}
	return Packet{b, s, end}, nil
}

// Size is how long a packet with this opcode and payload is, padding and ICRC
// included.
func Size(op Opcode, payload int) int {
	return op.HeaderSize() + (payload+3)&^3 + ICRCSize
}

// Make lays out a packet at the start of buf: it writes opcode, pad count and
// padding, and clears the rest of the BTH. The caller then writes BTH, extended
// headers and payload, and seals it. It panics if buf is shorter than [Size],
// or the opcode is not valid.
func Make(buf []byte, op Opcode, payload int) Packet {
	s := &shapes[op]
	if s.size == 0 {
		panic("wire: " + op.String())
	}
	pad := -payload & 3
	end := int(s.size) + payload
	b := buf[:end+pad+ICRCSize]
	clear(b[:BTHSize])
	b[0] = byte(op)
	BTH(b).setPad(pad)
	clear(b[end : end+pad])
	if op == CNP {
		clear(b[BTHSize:end])
		b[4] = 0x40
	}
	return Packet{b, s, end}
}

// Bytes is all of the packet, ICRC included.
func (p Packet) Bytes() []byte { return p.b }

// BTH is the first header.
func (p Packet) BTH() BTH { return BTH(p.b[:BTHSize]) }

// Opcode is that of the BTH.
func (p Packet) Opcode() Opcode { return Opcode(p.b[0]) }

// Payload is what follows the headers, without padding.
func (p Packet) Payload() []byte { return p.b[p.shape.size:p.end:p.end] }

// ext is the header of n bytes that follows the BTH.
func (p Packet) ext(has bool, n int) []byte {
	if !has {
		return nil
	}
	return p.b[BTHSize : BTHSize+n]
}

// RETH is there in requests of READ and in the first packet of a WRITE.
func (p Packet) RETH() RETH { return p.ext(p.shape.flags&hasRETH != 0, RETHSize) }

// AETH is there in ACKs, and in READ responses but the middle ones.
func (p Packet) AETH() AETH { return p.ext(p.shape.flags&hasAETH != 0, AETHSize) }

// AtomicETH is there in requests of atomic operations.
func (p Packet) AtomicETH() AtomicETH { return p.ext(p.shape.flags&hasAtomic != 0, AtomicETHSize) }

// DETH is there in datagrams.
func (p Packet) DETH() DETH { return p.ext(p.Opcode().Transport() == UD, DETHSize) }

// AtomicAckETH is there in answers to atomic operations.
func (p Packet) AtomicAckETH() AtomicAckETH {
	if p.shape.op != AtomicAck {
		return nil
	}
	return AtomicAckETH(p.b[BTHSize+AETHSize:][:AtomicAckETHSize])
}

// ImmDt is there where [Opcode.HasImm] says so.
func (p Packet) ImmDt() ImmDt { return p.last(hasImm) }

// IETH is there where [Opcode.HasInv] says so.
func (p Packet) IETH() IETH { return p.last(hasInv) }

func (p Packet) last(flag uint8) []byte {
	if p.shape.flags&flag == 0 {
		return nil
	}
	return p.b[p.shape.imm:][:ImmDtSize]
}
