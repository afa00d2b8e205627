package bootstrap

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/purerdma/purerdma/socketboot"
	"github.com/purerdma/purerdma/socketboot/internal/cause"
)

const (
	socketType   = 1 // ncclSocketTypeBootstrap
	helloLen     = 12
	extInfoLen   = 172
	connectLen   = 128 // of the union that holds the ring address
	noticeMark   = -1
	holdMark     = -2
	answeredMark = -3
	noticeLen    = 20
	maxNoticeLen = 1 << 10 // of the text
)

func hello(magic uint64) []byte {
	b := binary.LittleEndian.AppendUint64(nil, magic)
	return binary.LittleEndian.AppendUint32(b, socketType)
}

// word is a mark alone.
func word(mark int32) []byte { return binary.LittleEndian.AppendUint32(nil, uint32(mark)) }

// frame is a length and what follows it.
func frame(parts ...[]byte) []byte {
	b := make([]byte, 4)
	for _, p := range parts {
		b = append(b, p...)
	}
	binary.LittleEndian.PutUint32(b, uint32(len(b)-4))
	return b
}

// readLength reads the length before a frame. Those of notices are negative.
func readLength(r io.Reader) (int, error) {
	var b [4]byte
	if _, err := io.ReadFull(r, b[:]); err != nil {
		return 0, err
	}
	return int(int32(binary.LittleEndian.Uint32(b[:]))), nil
}

// readBody reads n bytes and allocates as they come, so that a length alone costs nothing.
func readBody(r io.Reader, n int) ([]byte, error) {
	var b bytes.Buffer
	if _, err := io.CopyN(&b, r, int64(n)); err != nil {
		if err == io.EOF {
			err = io.ErrUnexpectedEOF
		}
		return nil, err
	}
	return b.Bytes(), nil
}

// readFrame reads a frame of at most most bytes that is no notice.
func readFrame(r io.Reader, most int) ([]byte, error) {
	n, err := readLength(r)
	if err != nil {
		return nil, err
	}
	if n < 0 || n > most {
		return nil, fmt.Errorf("%w: length %d, want 0 to %d", ErrProtocol, n, most)
	}
	return readBody(r, n)
}

// extInfo is what a rank tells the root.
type extInfo struct {
	rank, size int
	root, ring netip.AddrPort // where it awaits the root, and the rank before it
}

func (e *extInfo) append(b []byte) []byte {
	le := binary.LittleEndian
	b = le.AppendUint32(b, uint32(e.rank))
	b = le.AppendUint32(b, uint32(e.size))
	b = le.AppendUint32(b, 0)
	b = le.AppendUint32(b, 1)
	b = append(b, make([]byte, addrLen+connectLen)...)
	tail := b[len(b)-addrLen-connectLen:]
	putAddr(tail, e.root)
	putAddr(tail[addrLen:], e.ring)
	return b
}

func decodeExtInfo(b []byte, most int) (extInfo, error) {
	le := binary.LittleEndian
	bad := func(format string, a ...any) (extInfo, error) {
		return extInfo{}, fmt.Errorf("%w: "+format, append([]any{ErrProtocol}, a...)...)
	}
	if len(b) != extInfoLen {
		return bad("a rank's info of %d bytes, want %d", len(b), extInfoLen)
	}
	rank, size, root, roots := le.Uint32(b), le.Uint32(b[4:]), le.Uint32(b[8:]), le.Uint32(b[12:])
	if size < 1 || size > uint32(most) || rank >= size {
		return bad("rank %d of %d, want one below at most %d", rank, size, most)
	}
	if root != 0 || roots != 1 {
		return bad("root %d of %d, want 0 of 1", root, roots)
	}
	e := extInfo{rank: int(rank), size: int(size), root: getAddr(b[16:]), ring: getAddr(b[16+addrLen:])}
	if err := checkAddr(e.root); err != nil {
		return bad("rank %d awaits the root at %v", rank, err)
	}
	if err := checkAddr(e.ring); err != nil {
		return bad("rank %d listens for the ring at %v", rank, err)
	}
	return e, nil
}

// kind is what a notice tells of a rank.
type kind uint32

const (
	left kind = iota
	died
	aborted
	absent // at the meeting
	kinds
)

func (k kind) err() error { return [kinds]error{ErrLeft, ErrDied, ErrAborted, ErrMissing}[k] }

// kindOf is the kind of an error that err gives.
func kindOf(err error) kind {
	for k := range kinds {
		if errors.Is(err, k.err()) {
			return k
		}
	}
	return died
}

// notice is word of a rank's end.
type notice struct {
	rank int
	kind kind
	took uint64 // all-gathers that a rank which left took part in
	text string
}

func (n *notice) frame() []byte {
	le := binary.LittleEndian
	text := n.text[:min(len(n.text), maxNoticeLen)]
	b := le.AppendUint32(word(noticeMark), uint32(n.rank))
	b = le.AppendUint32(b, uint32(n.kind))
	b = le.AppendUint64(b, n.took)
	b = le.AppendUint32(b, uint32(len(text)))
	return append(b, text...)
}

// readNotice reads what follows the mark.
func readNotice(r io.Reader, size int) (notice, error) {
	var b [noticeLen]byte
	if _, err := io.ReadFull(r, b[:]); err != nil {
		return notice{}, err
	}
	le := binary.LittleEndian
	rank, k, length := le.Uint32(b[:]), le.Uint32(b[4:]), le.Uint32(b[16:])
	if rank >= uint32(size) || k >= uint32(kinds) || length > maxNoticeLen {
		return notice{}, fmt.Errorf("%w: a notice of kind %d about rank %d with %d bytes", ErrProtocol, k, rank, length)
	}
	text, err := readBody(r, int(length))
	return notice{int(rank), kind(k), le.Uint64(b[8:]), printable(text)}, err
}

// printable is a peer's text without what would act on a terminal or a log. Errors that are joined have lines.
func printable(text []byte) string {
	return strings.Map(func(r rune) rune {
		if r != '\n' && (r == utf8.RuneError || !unicode.IsPrint(r)) {
			return '.'
		}
		return r
	}, string(text))
}

// reason is what has happened, in words of the rank that saw it.
func (n *notice) reason() error {
	if n.text == "" {
		return n.kind.err()
	}
	return fmt.Errorf("%w (%s)", n.kind.err(), n.text)
}

// listening is n for a peer whose listener has been there: one who refuses has gone.
func listening(n socketboot.Net) socketboot.Net {
	n.Retry.Times = 3
	return n
}

// dial opens a connection of the job and says hello on it.
func dial(ctx context.Context, n socketboot.Net, a netip.AddrPort, magic uint64) (net.Conn, error) {
	c, err := n.OpenPeer(ctx, a)
	if err != nil {
		return nil, err
	}
	if err := write(ctx, c, hello(magic)); err != nil {
		_ = c.Close()
		return nil, err
	}
	return c, nil
}

func write(ctx context.Context, c net.Conn, b []byte) error {
	return during(ctx, c, func() error { _, err := c.Write(b); return err })
}

// during runs a read or write that ends with ctx.
func during(ctx context.Context, c net.Conn, f func() error) error {
	defer socketboot.Interrupt(ctx, c)()
	if ctx.Err() != nil {
		return cause.Of(ctx)
	}
	err := f()
	if err != nil && ctx.Err() != nil {
		return fmt.Errorf("%w (%w)", cause.Of(ctx), err)
	}
	return err
}

// shutWrite ends the own direction of a connection.
func shutWrite(c net.Conn) {
	if half, ok := c.(interface{ CloseWrite() error }); ok {
		_ = half.CloseWrite()
	} else {
		_ = c.SetWriteDeadline(time.Unix(1, 0))
	}
}
