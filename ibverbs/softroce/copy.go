package softroce

import (
	"encoding/binary"
	"runtime"
	"runtime/debug"

	"github.com/purerdma/purerdma/ibverbs/softroce/internal/copycrc"
	"github.com/purerdma/purerdma/ibverbs/softroce/internal/wire"
)

// Memory that a registration covers may have been unmapped or truncated by its
// owner. A copy that touches it fails; the process goes on.

// putBytes copies src into memory of a registration. It reports false if that is gone.
func putBytes(dst, src []byte) (ok bool) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer caught(&ok)
	place(dst, src)
	return true
}

// getBytes copies from memory of a registration.
func getBytes(dst, src []byte) (ok bool) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer caught(&ok)
	copy(dst, src)
	return true
}

// seal is what the packets of a run have in common, and what of them changes.
type seal struct {
	run   wire.Run
	psn   wire.PSN
	id    uint16
	count int // packets since one asked for an ACK, this one not counted
}

// putRun makes packets of size bytes with an MTU of data each from memory of a
// registration. It reports false if that is gone.
func putRun(pkts []byte, size int, mem []byte, mtu int, s *seal) (ok bool) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer caught(&ok)
	for len(pkts) > 0 {
		p := pkts[:size:size]
		var f wire.Flags
		if s.count++; s.count >= ackEvery {
			f, s.count = wire.AckReq, 0
		}
		crc := copycrc.Update(s.run.Put(wire.BTH(p), f, s.psn, s.id), p[wire.BTHSize:], mem[:mtu])
		binary.LittleEndian.PutUint32(p[size-wire.ICRCSize:], crc)
		s.psn, s.id = s.psn.Add(1), s.id+1
		pkts, mem = pkts[size:], mem[mtu:]
	}
	return true
}

// getRun copies the payloads of packets of size bytes to memory of a registration,
// as long as they are right: n of them. It reports false if the memory is gone.
// What is behind the last that was right may have changed.
func getRun(mem, pkts []byte, size, mtu int, run *wire.Run, id uint16, exact bool) (n int, ok bool) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer caught(&ok)
	for ; len(pkts) > 0; n++ {
		p := pkts[:size]
		crc := copycrc.Update(run.Begin(wire.BTH(p), id+uint16(n)), mem, p[wire.BTHSize:wire.BTHSize+mtu])
		if diff := crc ^ binary.LittleEndian.Uint32(p[size-wire.ICRCSize:]); diff != 0 && (exact || !run.Recover(diff)) {
			break
		}
		pkts, mem = pkts[size:], mem[mtu:]
	}
	return n, true
}

// operate does an atomic operation on 8 aligned bytes of a registration: it adds,
// or stores swap if what is there equals compare.
func operate(b []byte, swaps bool, compareAdd, swap uint64) (old uint64, ok bool) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer caught(&ok)
	if swaps {
		return compareSwap(b, compareAdd, swap), true
	}
	return fetchAdd(b, compareAdd), true
}

// caught turns a fault into false and passes on all other panics.
func caught(ok *bool) {
	switch r := recover().(type) {
	case nil:
	case interface {
		runtime.Error
		Addr() uintptr
	}:
		*ok = false
	default:
		panic(r)
	}
}
