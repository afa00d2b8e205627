package wire

import "fmt"

// Opcode is the first byte of a packet: three bits of transport, five of
// operation.
type Opcode uint8

// Opcodes of the reliable connection.
const (
	RCSendFirst          Opcode = 0x00
	RCSendMiddle         Opcode = 0x01
	RCSendLast           Opcode = 0x02
	RCSendLastImm        Opcode = 0x03
	RCSendOnly           Opcode = 0x04
	RCSendOnlyImm        Opcode = 0x05
	RCWriteFirst         Opcode = 0x06
	RCWriteMiddle        Opcode = 0x07
	RCWriteLast          Opcode = 0x08
	RCWriteLastImm       Opcode = 0x09
	RCWriteOnly          Opcode = 0x0a
	RCWriteOnlyImm       Opcode = 0x0b
	RCReadRequest        Opcode = 0x0c
	RCReadResponseFirst  Opcode = 0x0d
	RCReadResponseMiddle Opcode = 0x0e
	RCReadResponseLast   Opcode = 0x0f
	RCReadResponseOnly   Opcode = 0x10
	RCAck                Opcode = 0x11
	RCAtomicAck          Opcode = 0x12
	RCCompareSwap        Opcode = 0x13
	RCFetchAdd           Opcode = 0x14
	RCSendLastInv        Opcode = 0x16
	RCSendOnlyInv        Opcode = 0x17
)

// Opcodes of the unreliable connection: those of the reliable one for SEND and
// WRITE, in their own range.
const (
	UCSendFirst    Opcode = 0x20
	UCSendMiddle   Opcode = 0x21
	UCSendLast     Opcode = 0x22
	UCSendLastImm  Opcode = 0x23
	UCSendOnly     Opcode = 0x24
	UCSendOnlyImm  Opcode = 0x25
	UCWriteFirst   Opcode = 0x26
	UCWriteMiddle  Opcode = 0x27
	UCWriteLast    Opcode = 0x28
	UCWriteLastImm Opcode = 0x29
	UCWriteOnly    Opcode = 0x2a
	UCWriteOnlyImm Opcode = 0x2b
)

// Opcodes of the unreliable datagram, and the congestion notification.
const (
	UDSendOnly    Opcode = 0x64
	UDSendOnlyImm Opcode = 0x65
	CNP           Opcode = 0x81
)

// Transport is the upper three bits of an opcode.
type Transport uint8

// Transports that are spoken here.
const (
	RC         Transport = 0
	UC         Transport = 1
	UD         Transport = 3
	Congestion Transport = 4
)

// Operation is what a packet is part of, the same for each transport.
type Operation uint8

// Operations. Those from ReadResponse on are answers and go to the requester.
const (
	Send Operation = iota + 1
	Write
	ReadRequest
	CompareSwap
	FetchAdd
	ReadResponse
	Ack
	AtomicAck
	Notify // CNP
)

// shape is the row of the table: what an opcode means and what follows the BTH.
type shape struct {
	name  string
	op    Operation
	flags uint8
	size  uint8 // of all headers
	imm   uint8 // where ImmDt or IETH lies, 0 for neither
}

const (
	starts uint8 = 1 << iota // FIRST, ONLY, and all that is one packet
	ends                     // LAST, ONLY, and all that is one packet
	hasRETH
	hasAETH
	hasAtomic
	hasImm
	hasInv
	hasData // a payload may follow
)

const only = starts | ends

func of(name string, op Operation, flags uint8) shape {
	s := shape{name: name, op: op, flags: flags, size: BTHSize}
	switch {
	case op == AtomicAck:
		s.size += AETHSize + AtomicAckETHSize
	case op == Notify:
		s.size += cnpReserved
	case flags&hasRETH != 0:
		s.size += RETHSize
	case flags&hasAETH != 0:
		s.size += AETHSize
	case flags&hasAtomic != 0:
		s.size += AtomicETHSize
	}
	return s.withImm()
}

func (s shape) withImm() shape {
	if s.flags&(hasImm|hasInv) != 0 {
		s.imm = s.size
		s.size += ImmDtSize
	}
	return s
}

func datagram(name string, flags uint8) shape {
	return shape{name: name, op: Send, flags: flags, size: BTHSize + DETHSize}.withImm()
}

var shapes = [256]shape{
	RCSendFirst:          of("RC SEND_FIRST", Send, starts|hasData),
	RCSendMiddle:         of("RC SEND_MIDDLE", Send, hasData),
	RCSendLast:           of("RC SEND_LAST", Send, ends|hasData),
	RCSendLastImm:        of("RC SEND_LAST_IMM", Send, ends|hasData|hasImm),
	RCSendOnly:           of("RC SEND_ONLY", Send, only|hasData),
	RCSendOnlyImm:        of("RC SEND_ONLY_IMM", Send, only|hasData|hasImm),
	RCWriteFirst:         of("RC WRITE_FIRST", Write, starts|hasData|hasRETH),
	RCWriteMiddle:        of("RC WRITE_MIDDLE", Write, hasData),
	RCWriteLast:          of("RC WRITE_LAST", Write, ends|hasData),
	RCWriteLastImm:       of("RC WRITE_LAST_IMM", Write, ends|hasData|hasImm),
	RCWriteOnly:          of("RC WRITE_ONLY", Write, only|hasData|hasRETH),
	RCWriteOnlyImm:       of("RC WRITE_ONLY_IMM", Write, only|hasData|hasRETH|hasImm),
	RCReadRequest:        of("RC READ_REQUEST", ReadRequest, only|hasRETH),
	RCReadResponseFirst:  of("RC READ_RESPONSE_FIRST", ReadResponse, starts|hasData|hasAETH),
	RCReadResponseMiddle: of("RC READ_RESPONSE_MIDDLE", ReadResponse, hasData),
	RCReadResponseLast:   of("RC READ_RESPONSE_LAST", ReadResponse, ends|hasData|hasAETH),
	RCReadResponseOnly:   of("RC READ_RESPONSE_ONLY", ReadResponse, only|hasData|hasAETH),
	RCAck:                of("RC ACKNOWLEDGE", Ack, only|hasAETH),
	RCAtomicAck:          of("RC ATOMIC_ACKNOWLEDGE", AtomicAck, only|hasAETH),
	RCCompareSwap:        of("RC COMPARE_SWAP", CompareSwap, only|hasAtomic),
	RCFetchAdd:           of("RC FETCH_ADD", FetchAdd, only|hasAtomic),
	RCSendLastInv:        of("RC SEND_LAST_INV", Send, ends|hasData|hasInv),
	RCSendOnlyInv:        of("RC SEND_ONLY_INV", Send, only|hasData|hasInv),

	UCSendFirst:    of("UC SEND_FIRST", Send, starts|hasData),
	UCSendMiddle:   of("UC SEND_MIDDLE", Send, hasData),
	UCSendLast:     of("UC SEND_LAST", Send, ends|hasData),
	UCSendLastImm:  of("UC SEND_LAST_IMM", Send, ends|hasData|hasImm),
	UCSendOnly:     of("UC SEND_ONLY", Send, only|hasData),
	UCSendOnlyImm:  of("UC SEND_ONLY_IMM", Send, only|hasData|hasImm),
	UCWriteFirst:   of("UC WRITE_FIRST", Write, starts|hasData|hasRETH),
	UCWriteMiddle:  of("UC WRITE_MIDDLE", Write, hasData),
	UCWriteLast:    of("UC WRITE_LAST", Write, ends|hasData),
	UCWriteLastImm: of("UC WRITE_LAST_IMM", Write, ends|hasData|hasImm),
	UCWriteOnly:    of("UC WRITE_ONLY", Write, only|hasData|hasRETH),
	UCWriteOnlyImm: of("UC WRITE_ONLY_IMM", Write, only|hasData|hasRETH|hasImm),

	UDSendOnly:    datagram("UD SEND_ONLY", only|hasData),
	UDSendOnlyImm: datagram("UD SEND_ONLY_IMM", only|hasData|hasImm),

	CNP: of("CNP", Notify, only),
}

// Valid says whether the opcode is one of the above.
func (o Opcode) Valid() bool { return shapes[o].size != 0 }

// Transport is what kind of queue pair it is for.
func (o Opcode) Transport() Transport { return Transport(o >> 5) }

// Operation is what it is part of, 0 for an opcode that is not valid.
func (o Opcode) Operation() Operation { return shapes[o].op }

// Starts says whether it is the first packet of its message, or the only one.
func (o Opcode) Starts() bool { return shapes[o].flags&starts != 0 }

// Ends says whether it is the last packet of its message, or the only one.
func (o Opcode) Ends() bool { return shapes[o].flags&ends != 0 }

// HasImm says whether it carries immediate data.
func (o Opcode) HasImm() bool { return shapes[o].flags&hasImm != 0 }

// HasInv says whether it carries a key to invalidate.
func (o Opcode) HasInv() bool { return shapes[o].flags&hasInv != 0 }

// HasRETH says whether it carries an address, key and length.
func (o Opcode) HasRETH() bool { return shapes[o].flags&hasRETH != 0 }

// HasAETH says whether it carries a syndrome and MSN.
func (o Opcode) HasAETH() bool { return shapes[o].flags&hasAETH != 0 }

// HasData says whether a payload may follow the headers.
func (o Opcode) HasData() bool { return shapes[o].flags&hasData != 0 }

// IsRequest says whether the packet is for the responder of its queue pair, in
// distinction to an answer for the requester.
func (o Opcode) IsRequest() bool { return o.Operation() >= Send && o.Operation() <= FetchAdd }

// HeaderSize is the bytes before the payload.
func (o Opcode) HeaderSize() int { return int(shapes[o].size) }

// String is the name in IBTA's words.
func (o Opcode) String() string {
	if o.Valid() {
		return shapes[o].name
	}
	return fmt.Sprintf("Opcode(%#02x)", uint8(o))
}
