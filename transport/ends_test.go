package transport

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"testing"

	"github.com/purerdma/purerdma/mr"
	"github.com/purerdma/purerdma/transport/driver"
)

// The parts of a message are all of it, on channels of their own, from the one whose turn it is on.
func TestPartsOfAMessage(t *testing.T) {
	for _, channels := range []int{1, 2, 3, 4, 64} {
		for number := range uint64(5) {
			for _, size := range []int{0, 1, partBytes, partBytes + 1, 2 * partBytes, channels * partBytes, channels*partBytes + 1, 1<<24 + 5, MaxMessage} {
				m := transfer{number: number}
				m.begin(size, channels)
				if n := len(m.parts); n < 1 || n > channels || n > 1 && size <= partBytes {
					t.Fatalf("%d bytes, %d channels: %d parts", size, channels, n)
				}
				at := 0
				for i, p := range m.parts {
					if p.off != at || p.end < p.off || p.channel != (int(number)+i)%channels || i > 0 && p.off%partAlign != 0 {
						t.Errorf("%d bytes, message %d, %d channels: %v", size, number, channels, m.parts)
					}
					at = p.end
				}
				if at != size {
					t.Errorf("%d of %d bytes", at, size)
				}
			}
		}
	}
}

// shared is a connector of NCCL's layout in memory that a test writes as the peer would.
type shared struct {
	fakeConnector
	conn Conn
}

func (s *shared) Conn() *Conn  { return &s.conn }
func (s *shared) Close() error { return nil }

func newShared(t *testing.T, fifo bool) (*shared, *driver.SendMem, *driver.RecvMem, []byte) {
	t.Helper()
	alloc := func(n int) *mr.Buffer {
		b, err := mr.Alloc(n)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := b.Close(); err != nil {
				t.Error(err)
			}
		})
		return b
	}
	s := &shared{conn: Conn{SendMem: alloc(4096), RecvMem: alloc(4096), FIFO: fifo}}
	s.conn.Buffers[Simple] = alloc(8 * 1024)
	head, err := mr.View[driver.SendMem](s.conn.SendMem, 0)
	if err != nil {
		t.Fatal(err)
	}
	tail, err := mr.View[driver.RecvMem](s.conn.RecvMem, 0)
	if err != nil {
		t.Fatal(err)
	}
	return s, head, tail, s.conn.Buffers[Simple].Bytes()
}

// A peer may write anything into memory that is shared.
func TestEndsRefuseWhatCannotBe(t *testing.T) {
	for name, bad := range map[string]func(head *driver.SendMem, tail *driver.RecvMem, b []byte) (in bool){
		"consumer ahead":  func(h *driver.SendMem, _ *driver.RecvMem, _ []byte) bool { h.Head = 1; return false },
		"consumer behind": func(h *driver.SendMem, _ *driver.RecvMem, _ []byte) bool { h.Head = ^uint64(8); return false },
		"producer ahead":  func(_ *driver.SendMem, m *driver.RecvMem, _ []byte) bool { m.Tail = 9; return true },
		"producer behind": func(_ *driver.SendMem, m *driver.RecvMem, _ []byte) bool { m.Tail = ^uint64(0); return true },
		"step too long": func(_ *driver.SendMem, m *driver.RecvMem, _ []byte) bool {
			m.Tail, m.ConnFIFO[0].Size = 1, 1025
			return true
		},
		"step of no bytes": func(_ *driver.SendMem, m *driver.RecvMem, _ []byte) bool { m.Tail = 1; return true },
		"half a header": func(_ *driver.SendMem, m *driver.RecvMem, _ []byte) bool {
			m.Tail, m.ConnFIFO[0].Size = 1, 63
			return true
		},
		"endless message": func(_ *driver.SendMem, m *driver.RecvMem, b []byte) bool {
			binary.LittleEndian.PutUint64(b, MaxMessage+1)
			m.Tail, m.ConnFIFO[0].Size = 1, 64
			return true
		},
		"more than the message": func(_ *driver.SendMem, m *driver.RecvMem, b []byte) bool {
			binary.LittleEndian.PutUint64(b, 10)
			m.Tail, m.ConnFIFO[0].Size, m.ConnFIFO[1].Size = 2, 64, 11
			return true
		},
	} {
		t.Run(name, func(t *testing.T) {
			c, head, tail, b := newShared(t, true)
			in := bad(head, tail, b)
			l := &lane{send: !in, connectors: []Connector{c}}
			k := newTestCall(l)
			drive(t.Context(), []*call{k})
			if !errors.Is(k.err, ErrProtocol) {
				t.Error(k.err)
			}
			if err := l.free(); err != nil {
				t.Error(err)
			}
		})
	}
}

func newTestCall(l *lane) *call {
	k := calls.Get().(*call)
	*k = call{lane: l, send: l.send, b: host(make([]byte, 20)), granted: k.granted, marks: k.marks}
	l.start(k)
	return k
}

// Where a GPU is at one end of shared memory the layout has no FIFO of sizes: both ends fill steps alike.
func TestLayoutWithoutFIFO(t *testing.T) {
	c, _, _, _ := newShared(t, false)
	out, in := &lane{send: true, connectors: []Connector{c}}, &lane{connectors: []Connector{c}}
	for _, size := range []int{0, 1, 960, 961, 1024, 2000, 100000} {
		s, r := newTestCall(out), newTestCall(in)
		s.b, r.b = host(make([]byte, size)), host(make([]byte, size))
		for i := range s.b.b {
			s.b.b[i] = byte(i * 7)
		}
		drive(t.Context(), []*call{s, r})
		if s.err != nil || r.err != nil || r.n != size || string(s.b.b) != string(r.b.b) {
			t.Errorf("%d bytes, want %d, or other bytes: %v, %v", r.n, size, s.err, r.err)
		}
	}
	if err := errors.Join(out.free(), in.free()); err != nil {
		t.Error(err)
	}
}

// puppetRing is the receiving end of a ring on which a test has put messages.
type puppetRing struct {
	fakeConnector
	messages [][]byte
	left     int
}

func (p *puppetRing) Ring() (driver.RingSender, driver.RingReceiver) { return nil, p }
func (p *puppetRing) Close() error                                   { return nil }
func (p *puppetRing) Next() ([]byte, int, bool, error) {
	if len(p.messages) == 0 {
		return nil, 0, false, io.EOF
	}
	return p.messages[0], p.left, true, nil
}
func (p *puppetRing) Release() error             { p.messages = p.messages[1:]; return nil }
func (p *puppetRing) Wait(context.Context) error { return nil }

func TestRingRefusesWhatCannotBe(t *testing.T) {
	header := func(size uint64, more ...byte) []byte {
		return append(binary.LittleEndian.AppendUint64(nil, size), more...)
	}
	for name, c := range map[string]struct {
		ring puppetRing
		want error
	}{
		"half a header":         {puppetRing{messages: [][]byte{{1, 2, 3}}}, ErrProtocol},
		"header in parts":       {puppetRing{messages: [][]byte{header(4)}, left: 1}, ErrProtocol},
		"endless message":       {puppetRing{messages: [][]byte{header(MaxMessage + 1)}}, ErrProtocol},
		"another size behind":   {puppetRing{messages: [][]byte{header(4, 1, 2, 3)}}, ErrProtocol},
		"more than the message": {puppetRing{messages: [][]byte{header(4), {1, 2, 3, 4, 5}}}, ErrProtocol},
		"pieces of no bytes":    {puppetRing{messages: [][]byte{header(4), {}}}, ErrProtocol},
		"end in the middle":     {puppetRing{messages: [][]byte{header(4), {1, 2}}}, ErrCut},
		"end":                   {puppetRing{}, ErrPeerClosed},
	} {
		t.Run(name, func(t *testing.T) {
			l := &lane{connectors: []Connector{&c.ring}}
			k := newTestCall(l)
			drive(t.Context(), []*call{k})
			if !errors.Is(k.err, c.want) {
				t.Errorf("%v, want %v", k.err, c.want)
			}
		})
	}
}
