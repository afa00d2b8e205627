package shmtransport

import (
	"encoding/binary"
	"errors"
	"fmt"
	"structs"
)

// The memory of a connection: a header, then two rings, the first from the one who made the memory to the other one, the second back.
// A ring is its control page, cells, then data. Offsets are multiples of a page. All of it is written by the other process as it
// likes: each word is read once, checked, then used.
const (
	pageSize = 4096

	// DefaultCells is how many cells a ring has: more than some dozen lines make single messages slower, fewer make streams slower.
	DefaultCells = 256
	// DefaultData is the size in bytes of a ring's data: twice a second-level cache of 1 MiB. Lines that are still modified in the
	// other core's second-level cache are slow to read; of a ring twice as large most have gone to the cache that both share.
	DefaultData = 2 << 20

	minCells, maxCells = 16, 1 << 16
	minData, maxData   = 64 << 10, 1 << 30
	maxExtra           = 1 << 32
)

// cell is what a receiver polls, 16 bytes: the value, then the word that says that it is there. The word is stored last.
//
//	bits   63…32     31…29  28    27     26…0
//	word   sequence  kind   wrap  stamp  bytes
//
// The sequence is the number of the cell since the start, from 1 on, so that what an earlier round of the ring left there never
// matches.
type cell struct {
	_     structs.HostLayout
	value uint64
	word  uint64
}

// The kinds of cells, and what they say.
const (
	kindInline = 1 // value is the first 8 bytes of a message of at most inlineMax, the next cells have the others
	kindMore   = 2 // value is 8 bytes more of it
	kindPart   = 3 // bytes in data; value is how much of the message is still to come, these included
	kindBatch  = 4 // bytes in data are messages of the same size, which is value
)

const (
	kindShift = 29
	flagWrap  = 1 << 28 // the bytes lie at the start of data: the rest before its end was too short
	flagStamp = 1 << 27 // control.stamp was written just before
	sizeMask  = 1<<27 - 1

	inlineMax = 32 // four cells: one line
)

// control is the first page of a ring. What one side writes is on lines of its own, and two apart, since some processors fetch lines
// in pairs.
type control struct {
	_         structs.HostLayout
	cellsRead uint64 // by the receiver: how many cells it is done with
	bytesRead uint64 // and how many bytes of data, with what wrapping skipped
	_         [112]byte
	far       uint32 // by the receiver: 1 = the sender's core is distant, large messages should go past the caches
	_         [124]byte
	stamp     uint64 // by the sender: a line whose transfer the receiver times
	_         [120]byte
	// The words on which the two sleep: 1 = asleep. Who wants to sleep sets its word, whoever wakes it clears it.
	receiverAsleep uint32
	_              [124]byte
	senderAsleep   uint32
	_              [pageSize - 516]byte
}

// header is the first page of the memory. What follows the text is for memory by a file, where no socket says it; index 0 is the
// process that made it.
type header struct {
	_        structs.HostLayout
	text     [headerText]byte // see geometry.encode
	attached uint32           // 1 = the other process has mapped the memory
	barriers [2]uint32        // 1 = can ask for barriers and be asked
	left     [2]uint32        // 1 = has closed in order
	_        [pageSize - headerText - 20]byte
}

const (
	headerText    = 64
	headerMagic   = "purerdma shm\x00\x00\x00\x01"
	headerVersion = 1
)

// geometry is how large the parts of a connection's memory are: each ring's, and what follows the rings for other uses.
type geometry struct {
	cells, data int
	extra       int64
}

var errGeometry = errors.New("sizes of shared memory that cannot be")

func powerOfTwo(n int) bool { return n > 0 && n&(n-1) == 0 }

func (g geometry) check() error {
	switch {
	case g.cells < minCells || g.cells > maxCells || !powerOfTwo(g.cells):
		return fmt.Errorf("%w: %d cells, want a power of two from %d to %d", errGeometry, g.cells, minCells, maxCells)
	case g.data < minData || g.data > maxData || !powerOfTwo(g.data):
		return fmt.Errorf("%w: %d bytes of data, want a power of two from %d to %d", errGeometry, g.data, minData, maxData)
	case g.extra < 0 || g.extra > maxExtra || g.extra%pageSize != 0:
		return fmt.Errorf("%w: %d bytes beside the rings, want whole pages up to %d", errGeometry, g.extra, int64(maxExtra))
	}
	return nil
}

func (g geometry) cellBytes() int { return (g.cells*16 + pageSize - 1) / pageSize * pageSize }
func (g geometry) ring() int      { return pageSize + g.cellBytes() + g.data }
func (g geometry) rings() int     { return pageSize + 2*g.ring() }
func (g geometry) size() int64    { return int64(g.rings()) + g.extra }

// maxPart bounds what one cell announces. A part that does not fit before the end of data wastes what is there, and a quarter may be
// free without the sender knowing it yet: with a quarter for a part there is always room for it once the receiver has read all.
func maxPart(data int) int { return min(data/4, sizeMask) }

// encode fills the text of a header.
//
//	0 magic (16), 16 version u32, 20 cells u32, 24 data u64, 32 extra u64, 40 zero
func (g geometry) encode(b *[headerText]byte) {
	*b = [headerText]byte{}
	copy(b[:], headerMagic)
	binary.LittleEndian.PutUint32(b[16:], headerVersion)
	binary.LittleEndian.PutUint32(b[20:], uint32(g.cells))
	binary.LittleEndian.PutUint64(b[24:], uint64(g.data))
	binary.LittleEndian.PutUint64(b[32:], uint64(g.extra))
}

// decodeGeometry checks a header that somebody else wrote, in memory of size bytes.
func decodeGeometry(b [headerText]byte, size int64) (geometry, error) {
	if string(b[:16]) != headerMagic {
		return geometry{}, fmt.Errorf("%w: memory that does not begin as a connection's does", errGeometry)
	}
	if v := binary.LittleEndian.Uint32(b[16:]); v != headerVersion {
		return geometry{}, fmt.Errorf("%w: version %d, want %d: both processes need the same release", errGeometry, v, headerVersion)
	}
	cells, data := binary.LittleEndian.Uint32(b[20:]), binary.LittleEndian.Uint64(b[24:])
	extra := binary.LittleEndian.Uint64(b[32:])
	if cells > maxCells || data > maxData || extra > maxExtra {
		return geometry{}, fmt.Errorf("%w: %d cells, %d bytes of data, %d beside", errGeometry, cells, data, extra)
	}
	g := geometry{int(cells), int(data), int64(extra)}
	if err := g.check(); err != nil {
		return geometry{}, err
	}
	if g.size() != size {
		return geometry{}, fmt.Errorf("%w: memory has %d bytes, its header speaks of %d", errGeometry, size, g.size())
	}
	return g, nil
}
