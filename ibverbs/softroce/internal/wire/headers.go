package wire

import "encoding/binary"

// Sizes of the headers in bytes.
const (
	BTHSize          = 12
	DETHSize         = 8
	RETHSize         = 16
	AETHSize         = 4
	AtomicETHSize    = 28
	AtomicAckETHSize = 8
	ImmDtSize        = 4
	IETHSize         = 4
	ICRCSize         = 4

	cnpReserved = 16
)

var be = binary.BigEndian

func uint24(b []byte) uint32 { return be.Uint32(b) & (1<<24 - 1) }

func putUint24(b []byte, v uint32) { b[0], b[1], b[2] = byte(v>>16), byte(v>>8), byte(v) }

// Flags are the single bits of the BTH.
type Flags uint8

// Bits of the BTH.
const (
	Solicited Flags = 1 << iota // SE
	Migrated                    // MigReq: the state of path migration; rxe leaves it 0
	AckReq                      // A
	FECN                        // outside the ICRC
	BECN                        // outside the ICRC; set in a CNP
)

// BTH is the base transport header. Bytes: opcode; SE, M, pad count, version;
// P_Key (2); FECN, BECN, reserved; destination QP (3); A, reserved; PSN (3).
type BTH []byte

// Put writes all of the header but the pad count, which [Make] wrote, and the
// version, which is 0.
func (h BTH) Put(op Opcode, f Flags, pkey uint16, qpn uint32, psn PSN) {
	_ = h[11]
	h[0] = byte(op)
	h[1] = h[1]&0x30 | byte(f&Solicited)<<7 | byte(f&Migrated)<<5
	be.PutUint16(h[2:], pkey)
	be.PutUint32(h[4:], uint32(f&FECN)<<28|uint32(f&BECN)<<26|qpn&0xffffff)
	be.PutUint32(h[8:], lastWord(f, psn))
}

// lastWord is the BTH's last four bytes.
func lastWord(f Flags, psn PSN) uint32 { return uint32(f&AckReq)<<29 | uint32(psn)&0xffffff }

// Opcode is byte 0.
func (h BTH) Opcode() Opcode { return Opcode(h[0]) }

// Flags are the single bits together.
func (h BTH) Flags() Flags {
	return Flags(h[1]>>7)*Solicited | Flags(h[1]>>6&1)*Migrated | Flags(h[8]>>7)*AckReq |
		Flags(h[4]>>7)*FECN | Flags(h[4]>>6&1)*BECN
}

// Solicited asks for an event at the receiver.
func (h BTH) Solicited() bool { return h[1]&0x80 != 0 }

// AckReq asks the responder for an ACK.
func (h BTH) AckReq() bool { return h[8]&0x80 != 0 }

// SetAckReq sets the bit and leaves the rest. The ICRC changes.
func (h BTH) SetAckReq() { h[8] |= 0x80 }

// Pad is how many bytes follow the payload so that its end is a multiple of 4.
func (h BTH) Pad() int { return int(h[1] >> 4 & 3) }

func (h BTH) setPad(n int) { h[1] = h[1]&^0x30 | byte(n)<<4 }

// Version is that of the transport header, 0.
func (h BTH) Version() uint8 { return h[1] & 15 }

// PKey is the partition key.
func (h BTH) PKey() uint16 { return be.Uint16(h[2:]) }

// QPN is the queue pair at the destination, 24 bits.
func (h BTH) QPN() uint32 { return uint24(h[4:]) }

// PSN is the packet sequence number.
func (h BTH) PSN() PSN { return PSN(uint24(h[8:])) }

// SetPSN writes the sequence number alone. The ICRC changes.
func (h BTH) SetPSN(n PSN) { putUint24(h[9:12], uint32(n)) }

// DETH is the datagram header. Bytes: Q_Key (4); reserved; source QP (3).
type DETH []byte

// Put writes the header.
func (h DETH) Put(qkey, srcQPN uint32) {
	be.PutUint32(h[0:], qkey)
	be.PutUint32(h[4:], srcQPN&0xffffff)
}

// QKey is the queue key.
func (h DETH) QKey() uint32 { return be.Uint32(h) }

// SrcQPN is the sender's queue pair, 24 bits.
func (h DETH) SrcQPN() uint32 { return uint24(h[4:]) }

// RETH is the header of WRITE and READ requests. Bytes: address (8); R_Key (4);
// length of the whole message (4).
type RETH []byte

// Put writes the header.
func (h RETH) Put(va uint64, rkey, length uint32) {
	be.PutUint64(h[0:], va)
	be.PutUint32(h[8:], rkey)
	be.PutUint32(h[12:], length)
}

// VA is the remote virtual address.
func (h RETH) VA() uint64 { return be.Uint64(h) }

// RKey is the remote key.
func (h RETH) RKey() uint32 { return be.Uint32(h[8:]) }

// Length is that of the message in bytes.
func (h RETH) Length() uint32 { return be.Uint32(h[12:]) }

// AtomicETH is the header of atomic requests. Bytes: address (8); R_Key (4);
// value to swap in or to add (8); value to compare with (8).
type AtomicETH []byte

// Put writes the header.
func (h AtomicETH) Put(va uint64, rkey uint32, swapOrAdd, compare uint64) {
	be.PutUint64(h[0:], va)
	be.PutUint32(h[8:], rkey)
	be.PutUint64(h[12:], swapOrAdd)
	be.PutUint64(h[20:], compare)
}

// VA is the remote virtual address.
func (h AtomicETH) VA() uint64 { return be.Uint64(h) }

// RKey is the remote key.
func (h AtomicETH) RKey() uint32 { return be.Uint32(h[8:]) }

// SwapOrAdd is the operand.
func (h AtomicETH) SwapOrAdd() uint64 { return be.Uint64(h[12:]) }

// Compare is what COMPARE_SWAP compares with.
func (h AtomicETH) Compare() uint64 { return be.Uint64(h[20:]) }

// AETH is the header of acknowledgements. Bytes: syndrome; MSN (3).
type AETH []byte

// Put writes the header. Of the message sequence number 24 bits go out.
func (h AETH) Put(s Syndrome, msn uint32) {
	be.PutUint32(h, uint32(s)<<24|msn&0xffffff)
}

// Syndrome says what kind of acknowledgement it is.
func (h AETH) Syndrome() Syndrome { return Syndrome(h[0]) }

// MSN is the message sequence number, 24 bits.
func (h AETH) MSN() uint32 { return uint24(h) }

// AtomicAckETH is the value that was there before the atomic operation (8).
type AtomicAckETH []byte

// Put writes the header.
func (h AtomicAckETH) Put(original uint64) { be.PutUint64(h, original) }

// Original is that value.
func (h AtomicAckETH) Original() uint64 { return be.Uint64(h) }

// ImmDt is immediate data, most significant byte first (4).
type ImmDt []byte

// Put writes the header.
func (h ImmDt) Put(imm uint32) { be.PutUint32(h, imm) }

// Imm is the data.
func (h ImmDt) Imm() uint32 { return be.Uint32(h) }

// IETH is the key to invalidate (4).
type IETH []byte

// Put writes the header.
func (h IETH) Put(rkey uint32) { be.PutUint32(h, rkey) }

// RKey is the key.
func (h IETH) RKey() uint32 { return be.Uint32(h) }
