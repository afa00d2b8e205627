package main

import (
	"bytes"
	"encoding/binary"
	"math/rand/v2"
)

// fill makes the bytes of a message, which both ends know by its seed.
func fill(b []byte, seed, number uint64) {
	r := rand.NewPCG(seed, number)
	for ; len(b) >= 8; b = b[8:] {
		binary.LittleEndian.PutUint64(b, r.Uint64())
	}
	last := r.Uint64()
	for i := range b {
		b[i] = byte(last >> (8 * i))
	}
}

// wrong counts the bytes of b that are not those of a message, of which scratch has room for one.
func wrong(b, scratch []byte, seed, number uint64) int {
	want := scratch[:len(b)]
	fill(want, seed, number)
	if bytes.Equal(b, want) {
		return 0
	}
	n := 0
	for i := range b {
		if b[i] != want[i] {
			n++
		}
	}
	return n
}

// numberOf tells messages apart: from one rank to another, the which-th between them.
func numberOf(from, to, which int) uint64 {
	return uint64(from)<<48 | uint64(to)<<32 | uint64(uint32(which))
}
