//go:build linux

package main

import (
	"encoding/binary"
	"math/rand/v2"
	"sync"
)

// texts are those of this process's ranks, who have the same.
var texts struct {
	sync.Mutex
	seed uint64
	b    []byte
}

// text is n bytes that a seed makes. They are not to be changed.
func text(seed uint64, n int) []byte {
	texts.Lock()
	defer texts.Unlock()
	if texts.seed != seed || len(texts.b) < n {
		g := rand.NewPCG(seed, 1)
		b := make([]byte, (n+7)&^7)
		for i := 0; i < len(b); i += 8 {
			binary.LittleEndian.PutUint64(b[i:], g.Uint64())
		}
		texts.seed, texts.b = seed, b
	}
	return texts.b[:n:n]
}
