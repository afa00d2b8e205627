package measure

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// ErrData is in the error of a message that arrived with other bytes than were sent.
var ErrData = errors.New("data was damaged, lost or came in the wrong order")

// Fill writes a pattern into b that depends on the seed and, byte by byte, on the place: a piece that is missing, moved, stale or
// from another message shows.
func Fill(b []byte, seed uint64) {
	var last [8]byte
	i := 0
	for ; i+8 <= len(b); i += 8 {
		binary.LittleEndian.PutUint64(b[i:], word(seed, i))
	}
	if i < len(b) {
		binary.LittleEndian.PutUint64(last[:], word(seed, i))
		copy(b[i:], last[:])
	}
}

// Check is nil if b is what Fill writes with this seed. Otherwise it names the first byte that is not.
func Check(b []byte, seed uint64) error { return CheckPart(b, seed, 0) }

// CheckPart is Check of a part of a message that begins at byte at, a multiple of 8.
func CheckPart(b []byte, seed uint64, at int) error {
	var want [8]byte
	for i := 0; i < len(b); i += 8 {
		w := word(seed, at+i)
		if i+8 <= len(b) && binary.LittleEndian.Uint64(b[i:]) == w {
			continue
		}
		binary.LittleEndian.PutUint64(want[:], w)
		for j := i; j < min(i+8, len(b)); j++ {
			if b[j] != want[j-i] {
				return fmt.Errorf("byte %d is %#02x, not %#02x: %w", at+j, b[j], want[j-i], ErrData)
			}
		}
	}
	return nil
}

// word is the eight bytes at a place: the finalizer of SplitMix64, a bijection that leaves no pattern.
func word(seed uint64, place int) uint64 {
	z := seed + 0x9e3779b97f4a7c15*uint64(place/8+1)
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}

// MessageSeed is the seed of one message's pattern out of that of the run.
func MessageSeed(run uint64, i int) uint64 { return word(run, 8*i) }
