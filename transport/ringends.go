package transport

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"github.com/purerdma/purerdma/transport/driver"
)

// ringEnd is what both ends of a ring have: they move their bytes themselves.
type ringEnd struct{ connector Connector }

func (r ringEnd) progress() (bool, error) { return false, nil }
func (r ringEnd) sleeps() bool            { return true }
func (r ringEnd) cut() error              { return r.connector.Close() }
func (r ringEnd) free() error             { return nil }

// ringOut is the sending end of a ring. What it has taken the peer has.
type ringOut struct {
	ringEnd
	s     driver.RingSender
	begun [headerBytes + inlineBytes]byte
	place []byte // from acquire, with room for the header
}

func (r *ringOut) begin(size int, b span) (taken int, ok bool, err error) {
	binary.LittleEndian.PutUint64(r.begun[:], uint64(size))
	n := headerBytes
	if size <= inlineBytes {
		if taken, err = host(r.begun[headerBytes:]).copy(b); err != nil {
			return 0, false, err
		}
		n += taken
	}
	if ok, err = r.s.TrySend(r.begun[:n]); !ok {
		return 0, false, err
	}
	return taken, true, nil
}

func (r *ringOut) put(b span) (int, error) {
	if b.c != nil {
		return r.fetch(b)
	}
	piece := b.b[:min(len(b.b), pieceBytes)]
	ok, err := r.s.TrySend(piece)
	if !ok {
		return 0, err
	}
	return len(piece), nil
}

// fetch is put of memory of a GPU, which is copied into the ring. What fails is sent empty, which is wrong for the peer.
func (r *ringOut) fetch(b span) (int, error) {
	n := min(b.n, pieceBytes, r.s.MaxAcquire())
	dst, err := r.s.Acquire(n)
	if dst == nil {
		return 0, err
	}
	n, err = host(dst).copy(b.from(0, n))
	if err != nil {
		return 0, errors.Join(err, r.s.Commit(0))
	}
	return n, r.s.Commit(n)
}

func (r *ringOut) most() int { return r.s.MaxAcquire() - lineBytes }

func (r *ringOut) acquire(n int) ([]byte, error) {
	b, err := r.s.Acquire(lineBytes + n)
	if b == nil {
		return nil, err
	}
	r.place = b
	return b[lineBytes:], nil
}

func (r *ringOut) commit(n int) error {
	putHeader(r.place, n)
	r.place = nil
	return r.s.Commit(lineBytes + n)
}

func (r *ringOut) sent() uint64                   { return 0 }
func (r *ringOut) gone() uint64                   { return 0 }
func (r *ringOut) wait(ctx context.Context) error { return r.s.Wait(ctx) }

// ringIn is the receiving end of a ring.
type ringIn struct {
	ringEnd
	r driver.RingReceiver
}

func (r *ringIn) header() (size int, first span, ok bool, err error) {
	b, left, ok, err := r.r.Next()
	if !ok {
		return 0, span{}, false, ended(err)
	}
	if left > 0 || len(b) < headerBytes {
		return 0, span{}, false, fmt.Errorf("%w: a header of %d bytes", ErrProtocol, len(b)+left)
	}
	if size, err = getHeader(b); err != nil {
		return 0, span{}, false, err
	}
	switch len(b) {
	case headerBytes, headerBytes + size:
		return size, host(b[headerBytes:]), true, nil
	case lineBytes + size: // from commit
		return size, host(b[lineBytes:]), true, nil
	}
	return 0, span{}, false, fmt.Errorf("%w: %d bytes that begin a message of %d", ErrProtocol, len(b), size)
}

func (r *ringIn) next(rest int) (span, bool, error) {
	b, left, ok, err := r.r.Next()
	if !ok {
		return span{}, false, ended(err)
	}
	if len(b) == 0 || len(b) > rest || left > rest-len(b) {
		return span{}, false, fmt.Errorf("%w: a piece of %d bytes, of which %d are here, of a part of which %d are to come", ErrProtocol, len(b)+left, len(b), rest)
	}
	return host(b), true, nil
}

// ended puts the end of a ring into words.
func ended(err error) error {
	if err == io.EOF {
		return ErrPeerClosed
	}
	return err
}

func (r *ringIn) release() error                 { return r.r.Release() }
func (r *ringIn) wait(ctx context.Context) error { return r.r.Wait(ctx) }
