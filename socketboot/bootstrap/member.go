package bootstrap

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/purerdma/purerdma/socketboot"
	"github.com/purerdma/purerdma/socketboot/internal/cause"
)

// linger bounds how long Close and Abort try to tell the neighbours.
const linger = time.Second

// Member is one rank's end of a job over TCP. It is a [Job].
type Member struct {
	*state
	cfg        Config
	net        socketboot.Net
	magic      uint64
	door       *door // for messages
	next, prev *link // of the ring; nil in a job of one; set under the state's lock
	addrs      atomic.Pointer[[]netip.AddrPort]
	ring       ring
	ctx        context.Context // ends with Close
	cancel     context.CancelFunc
	work       sync.WaitGroup
	closing    sync.Once
	ended      bool // nothing more is told; under the state's lock, as said is
	said       []notice
	telling    sync.WaitGroup // word to the neighbours that is not out yet
}

var _ Job = (*Member)(nil)

// link is a connection of the ring.
type link struct {
	net.Conn
	rank  int
	write sync.Mutex
}

func (l *link) send(b []byte) error {
	l.write.Lock()
	defer l.write.Unlock()
	_, err := l.Write(b)
	return err
}

func newMember(c Config) *Member {
	m := &Member{cfg: c, net: c.Net, magic: c.ID.Magic()}
	m.state = newState(c.Rank, c.Size, c.Limits, func(rank int) string {
		if a := m.addrs.Load(); a != nil && rank >= 0 && rank < len(*a) {
			return (*a)[rank].String()
		}
		return ""
	})
	m.ctx, m.cancel = context.WithCancel(context.Background())
	plainDial := c.Net.Dial
	m.net.Dial = func(ctx context.Context, a netip.AddrPort) (net.Conn, error) {
		if plainDial == nil {
			plainDial = func(ctx context.Context, a netip.AddrPort) (net.Conn, error) {
				var d net.Dialer
				return d.DialContext(ctx, "tcp", a.String())
			}
		}
		c, err := plainDial(ctx, a)
		if err == nil {
			keepAlive(c)
		}
		return c, err
	}
	return m
}

// Send is [Job.Send].
func (m *Member) Send(ctx context.Context, to int, tag uint32, b []byte) error {
	if err := m.checkRank("send to", to); err != nil {
		return err
	}
	if len(b) > m.limits.Message {
		return fmt.Errorf("bootstrap: send %d bytes to rank %d: %w of %d", len(b), to, ErrTooLong, m.limits.Message)
	}
	op := fmt.Sprintf("send with tag %#x", tag)
	if ctx == nil {
		return m.blame(to, op, cause.ErrNoContext)
	}
	if err := m.reachable(to, op); err != nil {
		return err
	}
	if to == m.rank {
		return m.blame(to, op, m.put(to, tag, append([]byte(nil), b...)))
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(m.life, func() { cancel(m.Err()) })()
	err := m.sendTo(ctx, (*m.addrs.Load())[to], tag, b)
	if err == nil {
		return nil
	}
	if gone := m.reachable(to, op); gone != nil {
		return gone
	}
	return m.blame(to, op, err)
}

// reachable is why a rank cannot be sent to.
func (m *Member) reachable(to int, op string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.err != nil {
		return m.err
	}
	if _, gone := m.left[to]; gone {
		return m.about(to, op, ErrLeft)
	}
	return nil
}

func (m *Member) sendTo(ctx context.Context, a netip.AddrPort, tag uint32, b []byte) error {
	c, err := dial(ctx, listening(m.net), a, m.magic)
	if err != nil {
		return err
	}
	defer c.Close()
	if err := write(ctx, c, append(frame(pair(m.rank, tag)), frame(b)...)); err != nil {
		return err
	}
	return untilClosed(ctx, c)
}

// receive takes a message from its connection.
func (m *Member) receive(ctx context.Context, g *guest) {
	var from int
	var tag uint32
	var b []byte
	err := during(ctx, g, func() error {
		who, err := readFrame(g, 8)
		if err != nil {
			return err
		}
		if from, tag, err = parsePair(who, m.size); err != nil {
			return err
		}
		b, err = readFrame(g, m.limits.Message)
		return err
	})
	if err == nil {
		err = m.put(from, tag, b)
	}
	if err != nil {
		m.net.Log.Debug("bootstrap: a message was refused", "peer", g.raw.RemoteAddr(), "rank", from, "tag", tag, "err", err)
		g.refuse()
		return
	}
	_ = g.Close()
}

// listen reads what a neighbour says on the ring until the connection ends.
func (m *Member) listen(l *link, slices bool) {
	for {
		n, err := readLength(l)
		if err == nil && n == noticeMark {
			var word notice
			if word, err = readNotice(l, m.size); err == nil {
				m.heard(word, l)
				continue
			}
		}
		if err == nil && (!slices || n < 0 || n > m.limits.Slice) {
			err = fmt.Errorf("%w: length %d on the ring", ErrProtocol, n)
		}
		var b []byte
		if err == nil {
			b, err = readBody(l, n)
		}
		if err == nil {
			err = m.addSlice(b)
		}
		if err != nil {
			m.lost(l, err)
			return
		}
	}
}

// lost is called when a neighbour's connection has ended.
func (m *Member) lost(l *link, err error) {
	m.mu.Lock()
	_, leaving := m.left[l.rank]
	m.mu.Unlock()
	if !leaving && m.ctx.Err() == nil {
		why := ErrDied
		if errors.Is(err, ErrProtocol) || errors.Is(err, ErrTooMany) {
			why = err
		}
		m.failAndTell(m.about(l.rank, "", fmt.Errorf("%w: %w", why, err)),
			notice{rank: l.rank, kind: died, text: fmt.Sprintf("seen by rank %d: %v", m.rank, err)}, nil)
	}
	shutWrite(l.Conn)
}

// heard takes notice of word, and passes it on, away from whom it came.
func (m *Member) heard(n notice, from *link) {
	if n.kind != left {
		m.failAndTell(m.about(n.rank, "", n.reason()), n, from)
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.leaveLocked(n.rank, n.took) {
		m.tellLocked(n, from)
	}
}

// failAndTell records the end of the job for this rank, and tells the neighbours except one why, unless it has ended before. Who is woken
// by the end may close at once, which tells nothing more: so the word is on its way by then.
func (m *Member) failAndTell(err error, n notice, except *link) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.failLocked(err) {
		m.tellLocked(n, except)
	}
}

// tellLocked tells the neighbours except one, and those that are linked later. It does not wait for them: a neighbour may be stuck, or the
// one that has failed. The caller holds the lock.
func (m *Member) tellLocked(n notice, except *link) {
	if m.ended {
		return
	}
	m.said = append(m.said, n)
	for _, l := range [...]*link{m.next, m.prev} {
		if l != nil && l != except {
			m.telling.Go(func() { _ = l.send(n.frame()) })
		}
	}
}

// join makes c the link to a neighbour, and tells it what it has missed.
func (m *Member) join(to **link, c net.Conn, rank int) {
	l := &link{Conn: c, rank: rank}
	m.mu.Lock()
	*to = l
	for _, n := range m.said {
		_ = l.SetWriteDeadline(time.Now().Add(linger))
		_ = l.send(n.frame())
	}
	m.mu.Unlock()
	m.work.Go(func() { m.listen(l, to == &m.prev) })
}

// Abort is [Job.Abort].
func (m *Member) Abort(reason error) {
	reason = orNoReason(reason)
	m.failAndTell(m.about(m.rank, "", fmt.Errorf("%w: %w", ErrAborted, reason)), notice{rank: m.rank, kind: aborted, text: reason.Error()}, nil)
}

// Close is [Job.Close]. It waits up to a second for the neighbours to take the goodbye.
func (m *Member) Close() error {
	m.mu.Lock()
	if m.failLocked(fmt.Errorf("bootstrap: rank %d: %w", m.rank, net.ErrClosed)) {
		m.tellLocked(notice{rank: m.rank, kind: left, took: m.ring.completed}, nil)
	}
	m.mu.Unlock()
	m.closing.Do(m.shut)
	return nil
}

// shut closes all, after what is being said to the neighbours has been said or linger is over. A connection that is closed with unread
// data on it would take back what was said, so both directions are brought to their end: the neighbour ends its own when it sees ours.
func (m *Member) shut() {
	m.mu.Lock()
	m.ended = true
	m.mu.Unlock()
	m.cancel()
	if m.door != nil {
		m.door.close()
	}
	links := [...]*link{m.next, m.prev}
	for _, l := range links {
		if l != nil {
			_ = l.SetDeadline(time.Now().Add(linger))
		}
	}
	m.telling.Wait()
	for _, l := range links {
		if l != nil {
			shutWrite(l.Conn)
		}
	}
	m.work.Wait()
	for _, l := range links {
		if l != nil {
			_ = l.Close()
		}
	}
}

func isEOF(err error) bool { return errors.Is(err, io.EOF) }
