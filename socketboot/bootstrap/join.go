package bootstrap

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"time"

	"github.com/purerdma/purerdma/socketboot"
	"github.com/purerdma/purerdma/socketboot/internal/cause"
)

var discard = slog.New(slog.DiscardHandler)

// Config is what Join needs.
type Config struct {
	ID         ID
	Rank, Size int
	// Net is how TCP is reached: the interface to listen at, Retry, Deadlines, Secure, Log. Its port must be 0: a rank has three
	// listeners.
	Net socketboot.Net
	// Timeout bounds Join besides its context; 0 = 2 minutes, a negative one is an error.
	Timeout time.Duration
	Limits  Limits
}

// Join meets the other ranks of a job. All ranks must call it; it returns when this rank can reach every other. If it fails, nothing
// is left open, and the error names the ranks that are missing, as far as that is known.
func Join(ctx context.Context, c Config) (*Member, error) {
	if ctx == nil {
		return nil, fmt.Errorf("bootstrap: join: %w", cause.ErrNoContext)
	}
	if c.Size < 1 || c.Size > MaxRanks || c.Rank < 0 || c.Rank >= c.Size {
		return nil, fmt.Errorf("bootstrap: rank %d of %d: want a rank from 0 on, below a size of at most %d", c.Rank, c.Size, MaxRanks)
	}
	if err := c.check(); err != nil {
		return nil, err
	}
	if c.Timeout == 0 {
		c.Timeout = defaultTimeout
	}
	c.Net = netDefaults(c.Net)
	m := newMember(c)
	if c.Size == 1 {
		return m, nil
	}
	if err := c.ID.Check(); err != nil {
		return nil, err
	}
	if c.Net.Bind.Port() != 0 {
		return nil, fmt.Errorf("bootstrap: Net.Bind has port %d, want 0: a rank has three listeners", c.Net.Bind.Port())
	}
	ctx, cancel := context.WithTimeout(ctx, c.Timeout)
	defer cancel()
	if err := m.meet(ctx); err != nil {
		m.abandon(err)
		return nil, err
	}
	return m, nil
}

// meet is Join but for the checks.
func (m *Member) meet(ctx context.Context) (err error) {
	var listeners [3]net.Listener
	var addrs [3]netip.AddrPort
	for i := range listeners {
		ln, addr, err := m.net.ListenForPeers(ctx)
		if err != nil {
			for _, open := range listeners[:i] {
				_ = open.Close()
			}
			return fmt.Errorf("bootstrap: %w", err)
		}
		listeners[i], addrs[i] = ln, addr
	}
	answer, prev := make(chan answer, 1), make(chan *guest, 1)
	m.door = openDoor(listeners[0], m.net, m.magic, m.limits.Pending, m.receive)
	rootDoor := openDoor(listeners[1], m.net, m.magic, m.limits.Pending, func(ctx context.Context, g *guest) { m.hear(ctx, g, answer) })
	defer rootDoor.close()
	ringDoor := openDoor(listeners[2], m.net, m.magic, m.limits.Pending, func(_ context.Context, g *guest) {
		select {
		case prev <- g:
		default:
			g.refuse()
		}
	})
	defer func() {
		ringDoor.close()
		select {
		case g := <-prev: // nobody took it
			_ = g.Close()
		default:
		}
	}()
	defer func() { err = m.door.blame(rootDoor.blame(ringDoor.blame(err))) }()

	me := extInfo{rank: m.rank, size: m.size, root: addrs[1], ring: addrs[2]}
	line, err := m.checkIn(ctx, &me)
	if err != nil {
		return err
	}
	nextAddr, err := m.awaitRoot(ctx, line, answer)
	if err != nil {
		return err
	}
	if err := m.joinRing(ctx, nextAddr, prev); err != nil {
		return err
	}
	return m.introduce(ctx, addrs[0])
}

// checkIn reports to the root, which may hold the connection.
func (m *Member) checkIn(ctx context.Context, me *extInfo) (net.Conn, error) {
	root := m.cfg.ID.Root()
	fail := func(err error) error {
		return fmt.Errorf("bootstrap: rank %d reports to the root at %s: %w: %w", m.rank, root, ErrNoRoot, err)
	}
	c, err := dial(ctx, m.net, root, m.magic)
	if err != nil {
		return nil, fail(err)
	}
	if err := write(ctx, c, frame(me.append(nil))); err != nil {
		_ = c.Close()
		return nil, fail(err)
	}
	line, err := awaitHold(ctx, c)
	if err != nil {
		return nil, fail(err)
	}
	return line, nil
}

// answer is what the root says.
type answer struct {
	next netip.AddrPort
	err  error
}

// hear takes the root's answer.
func (m *Member) hear(ctx context.Context, g *guest, out chan<- answer) {
	defer g.Close()
	var a answer
	err := during(ctx, g, func() error {
		n, err := readLength(g)
		switch {
		case err != nil:
			return err
		case n == noticeMark:
			said, err := readNotice(g, m.size)
			if a.err = said.reason(); said.kind != absent {
				a.err = &RankError{Op: "meet", Rank: said.rank, Err: a.err}
			}
			return err
		case n != connectLen:
			return fmt.Errorf("%w: the root's answer has %d bytes, want %d", ErrProtocol, n, connectLen)
		}
		b, err := readBody(g, n)
		if err != nil {
			return err
		}
		a.next = getAddr(b)
		return checkAddr(a.next)
	})
	if err != nil {
		m.net.Log.Warn("bootstrap: an answer of the root was refused", "peer", g.raw.RemoteAddr(), "err", err)
		return
	}
	select {
	case out <- a:
	default:
	}
}

func (m *Member) awaitRoot(ctx context.Context, line net.Conn, in <-chan answer) (next netip.AddrPort, err error) {
	gone, stop := watchRoot(line)
	defer func() { stop(err) }()
	var a answer
	select {
	case a = <-in:
	case err := <-gone:
		select {
		case a = <-in: // it came first
		default:
			return next, fmt.Errorf("bootstrap: rank %d awaits the root at %s: %w", m.rank, m.cfg.ID.Root(), err)
		}
	case <-ctx.Done():
		return next, fmt.Errorf("bootstrap: the root at %s has not answered rank %d of %d: %w: %w", m.cfg.ID.Root(), m.rank, m.size,
			ErrMissing, cause.Of(ctx))
	}
	if a.err != nil {
		return a.next, fmt.Errorf("bootstrap: the root at %s says: %w", m.cfg.ID.Root(), a.err)
	}
	return a.next, nil
}

// joinRing connects to the next rank and takes the connection of the one before. When that fails, the one before is still awaited a
// while, to be told which rank is to blame: it cannot know.
func (m *Member) joinRing(ctx context.Context, nextAddr netip.AddrPort, prev <-chan *guest) error {
	before, after := (m.rank+m.size-1)%m.size, (m.rank+1)%m.size
	var fault error
	if next, err := dial(ctx, listening(m.net), nextAddr, m.magic); err != nil {
		fault = &RankError{Op: "connect to the next rank", Rank: after, Addr: nextAddr.String(), Err: err}
	} else {
		m.join(&m.next, next, after)
	}
	for fault == nil && m.prev == nil {
		select {
		case g := <-prev:
			m.join(&m.prev, g.Conn, before)
		case <-m.Done(): // the next rank has failed, or told that another has
			fault = m.Err()
		case <-ctx.Done():
			fault = &RankError{Op: "await the rank before", Rank: before, Err: fmt.Errorf("%w: %w", ErrMissing, cause.Of(ctx))}
		}
	}
	if fault == nil {
		m.work.Go(m.gather)
		return nil
	}
	if lost := (*RankError)(nil); errors.As(fault, &lost) && lost.Rank == before {
		return fault // it will not come
	}
	select {
	case g := <-prev:
		m.join(&m.prev, g.Conn, before)
	case <-time.After(m.net.Deadlines.Hello):
	case <-ctx.Done():
	}
	return fault
}

// introductionLen is what a rank gives to the first all-gather: the addresses of its messages and of its proxy, and a hash, as NCCL has
// them. The latter two are 0.
const introductionLen = 2*addrLen + 8

// introduce tells all ranks where this one takes messages.
func (m *Member) introduce(ctx context.Context, mine netip.AddrPort) error {
	b := make([]byte, introductionLen)
	putAddr(b, mine)
	all, err := m.AllGather(ctx, b)
	if err != nil {
		return err
	}
	addrs := make([]netip.AddrPort, m.size)
	for rank, b := range all {
		if len(b) < introductionLen {
			return &RankError{Op: "introduction", Rank: rank, Err: fmt.Errorf("%w: %d bytes, want %d", ErrProtocol, len(b), introductionLen)}
		}
		addrs[rank] = getAddr(b)
		if err := checkAddr(addrs[rank]); err != nil {
			return &RankError{Op: "introduction", Rank: rank, Err: fmt.Errorf("%w: takes messages at: %w", ErrProtocol, err)}
		}
	}
	m.addrs.Store(&addrs)
	return nil
}

// untilClosed waits for the peer to end the connection in good order.
func untilClosed(ctx context.Context, c net.Conn) error {
	var b [1]byte
	return during(ctx, c, func() error {
		n, err := c.Read(b[:])
		switch {
		case n > 0:
			return fmt.Errorf("%w: an answer where none is due", ErrProtocol)
		case isEOF(err):
			return nil
		}
		return err
	})
}

// abandon undoes a Join that has failed. The ranks that are connected already are told.
func (m *Member) abandon(why error) {
	n := notice{rank: m.rank, kind: aborted, text: why.Error()}
	if e := (*RankError)(nil); errors.As(why, &e) {
		n = notice{rank: e.Rank, kind: absent, text: fmt.Sprintf("seen by rank %d: %v", m.rank, e.Err)}
	}
	m.failAndTell(why, n, nil)
	m.closing.Do(m.shut)
}
