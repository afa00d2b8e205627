package mlx5prm

import "encoding/binary"

// BE16 is a number of 16 bits, most significant byte first.
type BE16 [2]byte

// Get is the number.
func (b *BE16) Get() uint16 { return binary.BigEndian.Uint16(b[:]) }

// Set stores v.
func (b *BE16) Set(v uint16) { binary.BigEndian.PutUint16(b[:], v) }

// BE32 is a number of 32 bits, most significant byte first.
type BE32 [4]byte

// Get is the number.
func (b *BE32) Get() uint32 { return binary.BigEndian.Uint32(b[:]) }

// Set stores v.
func (b *BE32) Set(v uint32) { binary.BigEndian.PutUint32(b[:], v) }

// BE64 is a number of 64 bits, most significant byte first.
type BE64 [8]byte

// Get is the number.
func (b *BE64) Get() uint64 { return binary.BigEndian.Uint64(b[:]) }

// Set stores v.
func (b *BE64) Set(v uint64) { binary.BigEndian.PutUint64(b[:], v) }
