package wire

import (
	"encoding/binary"
	"math/bits"
)

// switches is the bits of a BTH's first eight bytes, read as a little-endian number,
// that switches may change.
const switches = 0xff << 32

// Run is packets of one size on one path whose BTHs differ in the last word alone,
// which holds PSN and AckReq, and in what switches change. It computes their ICRC
// piece by piece, for who copies the bytes behind the BTH as well, and takes what
// the BTHs have in common through the register once:
//
//	crc := run.Put(pkt, f, psn, id) // or Begin, of a BTH that came
//	crc = copycrc.Update(crc, dst, src) // all up to the ICRC
type Run struct {
	head     uint64 // what the BTHs have in common
	register uint32 // behind that, for Identification 0
	n        int
	v6       bool
}

// Run is for packets of n bytes with BTHs like first.
func (p Path) Run(n int, first BTH) Run {
	head := binary.LittleEndian.Uint64(first)
	return Run{head, tables.bth8(p.start(n, 0), head), n, p.v6}
}

// Has says whether a packet with this BTH is one of the run, whatever its PSN.
func (r *Run) Has(h BTH) bool { return (binary.LittleEndian.Uint64(h)^r.head)&^switches == 0 }

// Put writes a BTH that differs from the first in AckReq, if f has that, and in the
// PSN, and takes it through the register. What it returns is to be continued as by
// hash/crc32.
//
// It does not read what it has written: that would wait until all that was written
// before has left the processor's store buffer, such as the payload of a packet.
func (r *Run) Put(h BTH, f Flags, psn PSN, id uint16) uint32 {
	last := bits.ReverseBytes32(lastWord(f, psn))
	binary.LittleEndian.PutUint32(h[8:], last)
	binary.LittleEndian.PutUint64(h, r.head)
	return r.last(last, id)
}

// Begin does for a BTH that came what Put does for one to be written.
func (r *Run) Begin(h BTH, id uint16) uint32 { return r.last(binary.LittleEndian.Uint32(h[8:]), id) }

func (r *Run) last(word uint32, id uint16) uint32 {
	t := tables
	v := r.register
	if !r.v6 {
		v ^= t.idLast[0][id>>8] ^ t.idLast[1][id&255]
	}
	return ^t.four(v, word)
}

// Recover says whether a packet whose ICRC differs by diff from the one computed is
// right for another Identification, as Check does.
func (r *Run) Recover(diff uint32) bool {
	if diff == 0 || r.v6 {
		return diff == 0
	}
	_, ok := recoverID(diff, r.n)
	return ok
}
