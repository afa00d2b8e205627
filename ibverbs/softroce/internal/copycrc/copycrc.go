// Package copycrc copies bytes and computes their CRC-32 in one pass: the CRC of
// Ethernet, IEEE 802.3, which the invariant CRC of RoCE v2 is as well. Each packet
// of softroce is copied once at either end, and its bytes pass through the
// processor's registers then; a second pass over them costs as much again.
//
// On amd64 it is assembly with carry-less multiplication, folding four blocks at a
// time as described in "Fast CRC Computation for Generic Polynomials Using PCLMULQDQ
// Instruction" (Intel, 2009): 16-byte blocks where there is PCLMULQDQ, 64-byte ones
// where there are VPCLMULQDQ and AVX-512. Elsewhere it is hash/crc32.
package copycrc

import (
	"hash/crc32"
	"sync"
)

// Update copies src to the start of dst, which must not be shorter and must not
// overlap it, and returns what hash/crc32.Update returns for crc and src: the CRC of
// the bytes before them continued.
//
// Each byte of src is read once, so that the CRC is of what is in dst even if src
// changes meanwhile: a program may write to memory that is being sent. Nothing of
// dst is read.
func Update(crc uint32, dst, src []byte) uint32 {
	dst = dst[:len(src)]
	if n := len(src) &^ (block - 1); n >= least {
		crc = blocks(crc, dst[:n], src[:n])
		dst, src = dst[n:], src[n:]
	}
	return inGo(crc, dst, src)
}

// inGo does what no assembly does. Bytes go through memory of its own, since src
// and dst may both change behind its back.
func inGo(crc uint32, dst, src []byte) uint32 {
	if len(src) < bytewise {
		crc = ^crc
		for i, b := range src {
			dst[i] = b
			crc = crc32.IEEETable[byte(crc)^b] ^ crc>>8
		}
		return ^crc
	}
	through := buffers.Get().(*[bufferSize]byte)
	defer buffers.Put(through) // also when memory that is gone faults
	for len(src) > 0 {
		n := copy(through[:], src)
		crc = crc32.Update(crc, crc32.IEEETable, through[:n])
		copy(dst, through[:n])
		dst, src = dst[n:], src[n:]
	}
	return crc
}

const (
	// bytewise is up to which length a buffer costs more than it gains.
	bytewise   = 32
	bufferSize = 4096
)

var buffers = sync.Pool{New: func() any { return new([bufferSize]byte) }}
