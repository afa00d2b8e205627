package mlx5prm

import (
	"encoding/binary"
	"structs"
)

// QPRecord is the doorbell record of a QP: the counters of its receive and its send
// queue, modulo 2^16 (MLX5_RCV_DBR, MLX5_SND_DBR). An SRQ has the first alone.
type QPRecord struct {
	_    structs.HostLayout
	Recv BE32
	Send BE32
}

// CQRecord is the doorbell record of a CQ: the consumer index modulo 2^24, and the
// word that ArmWord makes (PRM, "CQ DoorBell Record").
type CQRecord struct {
	_   structs.HostLayout
	CI  BE32
	Arm BE32
}

// RecordSize is the bytes of a doorbell record, and its alignment.
const RecordSize = 8

// Offsets within a UAR page (PRM, "UAR Page Format"): the register that arms a CQ,
// and the first of the send doorbells, of which each has two halves of half of
// BlueFlameSize that are written in turns.
const (
	UARArm        = 0x20
	UARBlueFlame  = 0x800
	BlueFlameSize = 512 // bf_reg_size of every adapter so far; the context tells
)

// ArmSolicited in ArmWord asks for an event at solicited or failed completions only.
const ArmSolicited = 1 << 24

// CounterMask is the bits of a queue's counter in a QPRecord, CIMask those of a
// consumer index in a CQRecord.
const (
	CounterMask = 0xffff
	CIMask      = 0xffffff
)

// ArmWord is CQRecord.Arm: the number of the arm modulo 4, which grows with each event,
// flags, and the consumer index.
func ArmWord(sn, flags, ci uint32) uint32 { return sn&3<<28 | flags | ci&CIMask }

// ArmRegister is what to store at UARArm with one store of 64 bits: the ArmWord
// and the CQ's number, in the memory's order.
func ArmRegister(arm, cqn uint32) uint64 {
	var b [8]byte
	binary.BigEndian.PutUint32(b[:], arm)
	binary.BigEndian.PutUint32(b[4:], cqn)
	return binary.NativeEndian.Uint64(b[:])
}

// SendRegister is what to store into a send doorbell with one store of 64 bits:
// the first eight bytes of the last entry's Ctrl, in the memory's order.
func SendRegister(c *Ctrl) uint64 {
	var b [8]byte
	*(*[4]byte)(b[:4]) = c.OpmodIdxOpcode
	*(*[4]byte)(b[4:]) = c.QPNDS
	return binary.NativeEndian.Uint64(b[:])
}

// Word is the number of a processor whose bytes in memory are v big endian, for a
// record that is stored with one store of 32 bits.
func Word(v uint32) uint32 {
	var b [4]byte
	binary.BigEndian.PutUint32(b[:], v)
	return binary.NativeEndian.Uint32(b[:])
}

// OpOwn is the last byte of a completion in its last word, loaded as one number.
func OpOwn(last uint32) uint8 {
	var b [4]byte
	binary.NativeEndian.PutUint32(b[:], last)
	return b[3]
}
