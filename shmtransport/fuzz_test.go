//go:build linux

package shmtransport

import (
	"testing"

	"github.com/purerdma/purerdma/transport/driver"
)

func FuzzPacket(f *testing.F) {
	f.Add(packet{barriers: true, token: Token{1}}.encode())
	f.Add(packet{refused: true, reason: "no"}.encode())
	f.Fuzz(func(t *testing.T, b []byte) {
		p, err := decodePacket(b)
		if err != nil {
			return
		}
		if again, err := decodePacket(p.encode()); err != nil || again != p {
			t.Errorf("%+v became %+v, %v", p, again, err)
		}
	})
}

func FuzzBlob(f *testing.F) {
	var out driver.Blob
	theirs := blob{send: true, way: bySocket, rings: true, token: Token{1}, file: "nccl-abcdef"}
	theirs.encode(&out)
	f.Add(out[:])
	f.Fuzz(func(t *testing.T, b []byte) {
		var in driver.Blob
		copy(in[:], b)
		for _, mine := range []blob{{way: bySocket, rings: true}, {way: byFile, send: true}} {
			got, err := decodeBlob(&in, &mine)
			if err == nil && (got.send == mine.send || got.way != mine.way || got.rings != mine.rings || got.buffers != mine.buffers) {
				t.Errorf("%+v for %+v", got, mine)
			}
		}
	})
}

// Whatever a cell says, the receiver answers with a message, nothing or an error.
func FuzzCell(f *testing.F) {
	f.Add(uint64(8), uint64(kindInline)<<kindShift|8, uint64(0))
	f.Add(uint64(100), uint64(kindPart)<<kindShift|flagWrap|flagStamp|64, uint64(0))
	f.Add(uint64(8), uint64(kindBatch)<<kindShift|64, uint64(7))
	f.Fuzz(func(t *testing.T, value, low, pos uint64) {
		_, b := pair(t, WithCells(minCells), WithData(minData))
		b.r.pos = pos &^ 63
		b.r.toldBytes = b.r.pos
		buf := make([]byte, 1000)
		forge(b.r, value, low&(1<<32-1))
		for range 3 {
			if n, ok, err := b.TryRecv(buf); err == nil && (n > len(buf) || ok && n < 0) {
				t.Errorf("%d, %v", n, ok)
			}
			if _, left, _, err := b.Next(); err == nil && left < 0 {
				t.Errorf("%d bytes to come", left)
			}
			_ = b.Release()
		}
	})
}
