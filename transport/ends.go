package transport

import (
	"context"
	"encoding/binary"
	"fmt"

	"github.com/purerdma/purerdma/transport/driver"
)

// MaxMessage is the largest message of Send, in bytes.
const MaxMessage = 1 << 40

// What goes over a channel. A message begins with a header on one of its channels: its size in 8 bytes, little-endian.
//
// Through a layout each step is a frame, as full as it can be. The first has the header, padded to a line, and then as much of that
// channel's part as fits; those after it have bytes of the part alone.
//
// On a ring the header is a message of the ring, alone or with the whole message behind it, where a line begins if the message was made
// in place; what is not behind it follows as messages of the ring.
const (
	headerBytes = 8
	lineBytes   = 64
	inlineBytes = 24        // with the header what a ring carries best
	chunkBytes  = 128 << 10 // of a step at most: NCCL's chunk of send and receive between hosts
	pieceBytes  = 256 << 10 // of a ring's message at most, so that progress shows
)

// outlet is the sending end of one channel.
type outlet interface {
	// begin sends the header of a message of size bytes, and what of b goes with it.
	begin(size int, b span) (taken int, ok bool, err error)
	// put sends a first part of b, 0 bytes of it if there is no room. The next call must then be for the same bytes.
	put(b span) (n int, err error)
	// acquire gives room for a whole message of n bytes, at most most of them, nil if there is none; commit sends it with its first n. After
	// cut, too, it must be called.
	acquire(n int) ([]byte, error)
	commit(n int) error
	most() int
	// sent is the number of steps given to the connection, gone of those which the peer has.
	sent() uint64
	gone() uint64
	pump
}

// inlet is the receiving end of one channel.
type inlet interface {
	// header takes the next message's header. first is what came with it, until release, and may be longer than the channel's part.
	header() (size int, first span, ok bool, err error)
	// next gives bytes of a part of which rest bytes are to come, until release.
	next(rest int) (b span, ok bool, err error)
	release() error
	pump
}

// pump is what moves the bytes that the ends themselves do not, and what ends the connection.
type pump interface {
	// progress may be called by several goroutines, also while another uses the end.
	progress() (moved bool, err error)
	// sleeps tells that wait sleeps until something has changed; otherwise there is nothing to do but look again.
	sleeps() bool
	wait(ctx context.Context) error
	// cut closes the connector, under whoever uses the end. Memory that is out stays until free, which nobody may use the end after.
	cut() error
	free() error
}

// newEnd finds how the messages of a connector move.
func newEnd(c Connector, send bool) (outlet, inlet, error) {
	if r, ok := c.(driver.Ringer); ok {
		s, x := r.Ring()
		if send && s != nil {
			return &ringOut{ringEnd: ringEnd{c}, s: s}, nil, nil
		}
		if !send && x != nil {
			return nil, &ringIn{ringEnd{c}, x}, nil
		}
	}
	l, err := newLayout(c, send)
	if err != nil {
		return nil, nil, err
	}
	if send {
		return &stepsOut{layout: l}, nil, nil
	}
	return nil, &stepsIn{layout: l}, nil
}

func putHeader(dst []byte, size int) {
	binary.LittleEndian.PutUint64(dst, uint64(size))
	clear(dst[headerBytes:lineBytes])
}

func getHeader(b []byte) (int, error) {
	size := binary.LittleEndian.Uint64(b)
	if size > MaxMessage {
		return 0, fmt.Errorf("%w: a message of %d bytes", ErrProtocol, size)
	}
	return int(size), nil
}
