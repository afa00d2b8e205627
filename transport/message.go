package transport

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/purerdma/purerdma/transport/driver"
)

// message is what one rank sends another in one step of the loop.
//
//	off  size  field
//	0    4     number of the round
//	4    4     0, or 1 if the sender has failed: then there are no blobs, and the text says why
//	8    4     blobs of ends at which the sender receives, they come first
//	12   4     blobs of ends at which it sends
//	16   16    name of the transport
//	32   4     length of the text: why the transports before were refused
//	36   ...   text, blobs
//
// The message after the last step is empty, as NCCL's is, or one of these that tells a failure.
type message struct {
	round      uint32
	failed     bool
	recv, send []Blob
	transport  string
	text       string
}

const (
	messageLen = 36
	maxText    = 2 << 10
)

func (m *message) append(b []byte) []byte {
	le := binary.LittleEndian
	failed := uint32(0)
	if m.failed {
		failed = 1
	}
	text := m.text[:min(len(m.text), maxText)]
	b = le.AppendUint32(b, m.round)
	b = le.AppendUint32(b, failed)
	b = le.AppendUint32(b, uint32(len(m.recv)))
	b = le.AppendUint32(b, uint32(len(m.send)))
	var name [16]byte
	copy(name[:], m.transport)
	b = append(b, name[:]...)
	b = le.AppendUint32(b, uint32(len(text)))
	b = append(b, text...)
	for _, blobs := range [][]Blob{m.recv, m.send} {
		for i := range blobs {
			b = append(b, blobs[i][:]...)
		}
	}
	return b
}

func decodeMessage(b []byte) (message, error) {
	bad := func(format string, a ...any) (message, error) {
		return message{}, fmt.Errorf("%w: "+format, append([]any{ErrProtocol}, a...)...)
	}
	if len(b) < messageLen {
		return bad("%d bytes, want %d or more", len(b), messageLen)
	}
	le := binary.LittleEndian
	m := message{round: le.Uint32(b), transport: string(bytes.TrimRight(b[16:32], "\x00"))}
	failed, recv, send, text := le.Uint32(b[4:]), le.Uint32(b[8:]), le.Uint32(b[12:]), le.Uint32(b[32:])
	if failed > 1 || recv > MaxChannels || send > MaxChannels || text > maxText {
		return bad("failed %d, %d and %d blobs, text of %d bytes", failed, recv, send, text)
	}
	if want := messageLen + int(text) + driver.BlobSize*int(recv+send); len(b) != want {
		return bad("%d bytes, want %d", len(b), want)
	}
	m.failed = failed == 1
	m.text = printable(b[messageLen : messageLen+text])
	b = b[messageLen+text:]
	m.recv, b = blobs(b, int(recv))
	m.send, _ = blobs(b, int(send))
	return m, nil
}

// printable is a rank's text without what would act on a terminal or a log. Lines and tabs separate what it says.
func printable(text []byte) string {
	return strings.Map(func(r rune) rune {
		if r != '\n' && r != '\t' && (r == utf8.RuneError || !unicode.IsPrint(r)) {
			return '.'
		}
		return r
	}, string(text))
}

func blobs(b []byte, n int) ([]Blob, []byte) {
	out := make([]Blob, n)
	for i := range out {
		out[i] = Blob(b[i*driver.BlobSize:])
	}
	return out, b[n*driver.BlobSize:]
}

// plan is what a rank gives to the all-gather before the loop, and, without the last fields, to the vote after it.
type plan struct {
	round      uint32
	failed     bool
	told       bool // failed because another rank did
	conn       uint32
	graph      uint32
	send, recv digest
	text       string
}

const planLen = 52

func (p *plan) append(b []byte) []byte {
	le := binary.LittleEndian
	var flags uint32
	if p.failed {
		flags |= 1
	}
	if p.told {
		flags |= 2
	}
	text := p.text[:min(len(p.text), maxText)]
	b = le.AppendUint32(b, p.round)
	b = le.AppendUint32(b, flags)
	b = le.AppendUint32(b, p.conn)
	b = le.AppendUint32(b, p.graph)
	b = append(b, p.send[:]...)
	b = append(b, p.recv[:]...)
	b = le.AppendUint32(b, uint32(len(text)))
	return append(b, text...)
}

func decodePlan(b []byte) (plan, error) {
	if len(b) < planLen {
		return plan{}, fmt.Errorf("%w: a plan of %d bytes", ErrProtocol, len(b))
	}
	le := binary.LittleEndian
	p := plan{round: le.Uint32(b), conn: le.Uint32(b[8:]), graph: le.Uint32(b[12:]), send: digest(b[16:]), recv: digest(b[32:])}
	flags, text := le.Uint32(b[4:]), le.Uint32(b[48:])
	if flags > 3 || text > maxText || len(b) != planLen+int(text) {
		return plan{}, fmt.Errorf("%w: a plan with flags %#x and a text of %d bytes in %d", ErrProtocol, flags, text, len(b))
	}
	p.failed, p.told, p.text = flags&1 != 0, flags&2 != 0, printable(b[planLen:])
	return p, nil
}
