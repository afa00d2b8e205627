package shmtransport

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/purerdma/purerdma/transport/driver"
)

// way is how two ranks share memory.
type way uint32

const (
	bySocket way = 1 // a memfd over the receiver's socket
	byFile   way = 2 // a file that the receiver makes
)

func (w way) String() string {
	switch w {
	case bySocket:
		return "memfd"
	case byFile:
		return "file"
	}
	return fmt.Sprintf("way %d", uint32(w))
}

// blob is what one end tells the other before they connect.
//
//	off  size  field
//	0    16    magic
//	16   4     version
//	20   4     1 = the sending end, 0 = the receiving one
//	24   4     way
//	28   4     1 = messages go through the rings
//	32   16    token, by which the sender dials
//	48   24    sizes of the buffers LL, LL128, SIMPLE
//	72   16    name of the file
type blob struct {
	send    bool
	way     way
	rings   bool
	token   Token
	buffers [driver.Protocols]int
	file    string
}

const (
	blobMagic   = "purerdma shm cn\x01"
	blobVersion = 1
)

func (b *blob) encode(out *driver.Blob) {
	*out = driver.Blob{}
	le := binary.LittleEndian
	copy(out[:], blobMagic)
	le.PutUint32(out[16:], blobVersion)
	le.PutUint32(out[20:], bit(b.send))
	le.PutUint32(out[24:], uint32(b.way))
	le.PutUint32(out[28:], bit(b.rings))
	copy(out[32:], b.token[:])
	for i, n := range b.buffers {
		le.PutUint64(out[48+8*i:], uint64(n))
	}
	copy(out[72:88], b.file)
}

func bit(b bool) uint32 {
	if b {
		return 1
	}
	return 0
}

var errBlob = errors.New("what the other end of a shared memory connection says")

// decodeBlob checks what the other end said against what this end is.
func decodeBlob(in *driver.Blob, mine *blob) (blob, error) {
	le := binary.LittleEndian
	if string(in[:16]) != blobMagic || le.Uint32(in[16:]) != blobVersion {
		return blob{}, fmt.Errorf("%w: no blob of this version: both ranks need the same release", errBlob)
	}
	name, _, _ := bytes.Cut(in[72:88], []byte{0})
	b := blob{send: le.Uint32(in[20:]) == 1, way: way(le.Uint32(in[24:])), rings: le.Uint32(in[28:]) == 1, token: Token(in[32:48]), file: string(name)}
	for i := range b.buffers {
		n := le.Uint64(in[48+8*i:])
		if n != uint64(mine.buffers[i]) {
			return blob{}, fmt.Errorf("%w: buffer %v of %d bytes, here %d", errBlob, driver.Protocol(i), n, mine.buffers[i])
		}
		b.buffers[i] = mine.buffers[i]
	}
	switch {
	case b.send == mine.send:
		return blob{}, fmt.Errorf("%w: both ends want to send, or both to receive", errBlob)
	case b.way != mine.way:
		return blob{}, fmt.Errorf("%w: memory by %v, here by %v", errBlob, b.way, mine.way)
	case b.rings != mine.rings:
		return blob{}, fmt.Errorf("%w: the two do not agree whether a rank has a GPU", errBlob)
	}
	return b, nil
}
