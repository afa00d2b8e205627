package transport

import (
	"encoding/binary"
	"errors"
	"sync"
	"sync/atomic"

	"github.com/purerdma/purerdma/gpu"
)

// span is n bytes of a message or of a connection, in memory of the processor or of a GPU.
type span struct {
	b  []byte
	c  gpu.Context // nil: the processor's
	p  gpu.Ptr
	n  int
	at *space // of a connection
}

// space is a connection's memory on a GPU. Whoever ends the connection waits for what others do there.
type space struct {
	c      gpu.Context
	mu     sync.Mutex
	stream gpu.Stream // of copies
	over   bool
}

func host(b []byte) span { return span{b: b, n: len(b)} }

// from is the bytes from i on, up to j.
func (s span) from(i, j int) span {
	if s.c == nil {
		return host(s.b[i:j:j])
	}
	s.p, s.n = s.p+gpu.Ptr(i), j-i
	return s
}

// copy copies as much as there is and fits, and returns when that has been done.
func (s span) copy(src span) (n int, err error) {
	if s.c == nil && src.c == nil {
		return copy(s.b, src.b), nil
	}
	if n = min(s.n, src.n); n == 0 {
		return 0, nil
	}
	at := s.at
	if at == nil {
		at = src.at
	}
	if at != nil {
		at.mu.Lock()
		defer at.mu.Unlock()
		if at.over {
			return 0, ErrClosed
		}
	}
	switch {
	case s.c == nil:
		return n, src.c.ReadFrom(s.b[:n], src.p)
	case src.c == nil:
		return n, s.c.WriteTo(s.p, src.b[:n])
	case at != nil:
		return n, copied(at.c, s.p, src.p, n, at.stream)
	}
	stream, err := s.c.NewStream()
	if err != nil {
		return 0, err
	}
	return n, errors.Join(copied(s.c, s.p, src.p, n, stream), s.c.CloseStream(stream))
}

func copied(c gpu.Context, dst, src gpu.Ptr, n int, stream gpu.Stream) error {
	if err := c.Copy(dst, src, n, stream); err != nil {
		return err
	}
	return c.Synchronize(stream)
}

// word is a counter of steps that one end writes and the other reads.
type word struct {
	host *uint64
	at   *space // where host is nil
	p    gpu.Ptr
	last uint64 // stored, under at.mu
}

// left is set in a counter on a GPU by who closes the connection: not every transport tells that itself.
const left = 1 << 63

func (w *word) load() (uint64, error) {
	if w.host != nil {
		return atomic.LoadUint64(w.host), nil
	}
	w.at.mu.Lock()
	defer w.at.mu.Unlock()
	if w.at.over {
		return 0, ErrClosed
	}
	var b [8]byte
	err := w.at.c.ReadFrom(b[:], w.p)
	return binary.NativeEndian.Uint64(b[:]), err
}

func (w *word) store(v uint64) error {
	if w.host != nil {
		atomic.StoreUint64(w.host, v)
		return nil
	}
	w.at.mu.Lock()
	defer w.at.mu.Unlock()
	if w.at.over {
		return ErrClosed
	}
	w.last = v
	return w.write(v)
}

func (w *word) write(v uint64) error {
	var b [8]byte
	binary.NativeEndian.PutUint64(b[:], v)
	return w.at.c.WriteTo(w.p, b[:])
}

// close ends the use of the memory. A peer that is there finds in w, if that is on a GPU, that this end has left.
func (s *space) close(w *word, there bool) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.over {
		return nil
	}
	s.over = true
	var errs []error
	if w.host == nil && there {
		errs = append(errs, w.write(w.last|left))
	}
	return errors.Join(append(errs, s.c.CloseStream(s.stream))...)
}

// leaveUnused tells the peer, where only a counter on a GPU can, that this end has left before it was ever used.
func leaveUnused(c Connector, send bool) error {
	conn := c.Conn()
	if conn == nil || conn.GPU == nil || conn.SendMem != nil || conn.RecvMem != nil {
		return nil
	}
	at := &space{c: conn.GPU.Context}
	mine, peers := word{at: at, p: conn.GPU.Head}, word{at: at, p: conn.GPU.Tail}
	if send {
		mine, peers = peers, mine
	}
	l := &layout{connector: c, peers: peers}
	if !l.there() {
		return nil
	}
	return mine.write(left)
}
