package bootstrap

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"sync"
	"time"

	"github.com/purerdma/purerdma/socketboot"
	"github.com/purerdma/purerdma/socketboot/internal/cause"
)

// MaxRanks bounds the size of a job.
const MaxRanks = 1 << 16

// Root is where the ranks of one job meet. It works by itself until all have met, or Close.
type Root struct {
	id   ID
	cfg  RootConfig
	net  socketboot.Net
	door *door
	met  chan struct{} // closed when the meeting has ended, well or not
	work sync.WaitGroup

	mu    sync.Mutex
	size  int // 0 until the first rank has come
	came  map[int]extInfo
	lines map[int]*guest // of ranks that have come, where they are held
	err   error
	over  bool
	timer *time.Timer
}

// RootConfig is what NewRoot makes a Root of.
type RootConfig struct {
	// Net is how it listens: at Net.Bind, or at the address of the chosen interface.
	Net socketboot.Net
	// Fixed makes the magic of the job NCCL's constant, for ranks that know only the address (NCCL_COMM_ID); else it is random.
	Fixed bool
	// Timeout is how long the first rank waits for the last before those that came are told who is missing; 0 = 2 minutes, a negative one is an
	// error.
	Timeout time.Duration
}

const defaultTimeout = 2 * time.Minute

// NewRoot listens. ctx bounds only this call.
func NewRoot(ctx context.Context, c RootConfig) (*Root, error) {
	if ctx == nil {
		return nil, fmt.Errorf("bootstrap: root: %w", cause.ErrNoContext)
	}
	if err := notNegative("RootConfig.Timeout", c.Timeout); err != nil {
		return nil, err
	}
	if c.Timeout == 0 {
		c.Timeout = defaultTimeout
	}
	n := netDefaults(c.Net)
	ln, addr, err := n.ListenForPeers(ctx)
	if err != nil {
		return nil, fmt.Errorf("bootstrap: root: %w", err)
	}
	magic := uint64(socketboot.Magic)
	if !c.Fixed {
		magic = newMagic()
	}
	r := &Root{id: IDFor(addr, magic), cfg: c, net: n, met: make(chan struct{}), came: map[int]extInfo{}, lines: map[int]*guest{}}
	r.mu.Lock()
	r.door = openDoor(ln, n, magic, Limits{}.orDefaults().Pending, r.checkIn)
	r.mu.Unlock()
	return r, nil
}

// ID is what every rank needs to join.
func (r *Root) ID() ID { return r.id }

// Met is closed when the meeting has ended; Err then tells how.
func (r *Root) Met() <-chan struct{} { return r.met }

// Err is nil until the meeting has ended, and if it ended well.
func (r *Root) Err() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.err
}

// Close ends the meeting, if it has not ended, and waits for what is under way. The result is nil.
func (r *Root) Close() error {
	r.mu.Lock()
	r.end(fmt.Errorf("bootstrap: the root was closed: %w", r.missing()))
	r.mu.Unlock()
	r.door.close()
	r.work.Wait()
	return nil
}

// Fail ends the meeting, if it has not ended: all that have come are told the reason.
func (r *Root) Fail(reason error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.end(r.door.blame(orNoReason(reason)))
}

// missing names the ranks that have not come. The caller holds the lock.
func (r *Root) missing() error {
	if r.size == 0 {
		return r.door.blame(fmt.Errorf("%w: none has come", ErrMissing))
	}
	var absent []int
	for rank := range r.size {
		if _, ok := r.came[rank]; !ok {
			absent = append(absent, rank)
		}
	}
	return r.door.blame(fmt.Errorf("%w: %s of %d", ErrMissing, list(absent), r.size))
}

// checkIn takes a rank's info.
func (r *Root) checkIn(ctx context.Context, g *guest) {
	var b []byte
	err := during(ctx, g, func() (err error) { b, err = readFrame(g, extInfoLen); return err })
	if err == nil {
		var e extInfo
		if e, err = decodeExtInfo(b, MaxRanks); err == nil {
			_ = write(ctx, g, word(holdMark)) // one of NCCL has closed its end already
			if err := r.add(e, g); err != nil {
				r.tellOrLog(ctx, e, err)
				release(ctx, g)
			}
			return
		}
	}
	r.net.Log.Warn("bootstrap: a rank's info was refused", "peer", g.raw.RemoteAddr(), "err", err)
	g.refuse()
}

// add takes a rank, and the connection on which it has reported unless there is an error.
func (r *Root) add(e extInfo, g *guest) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.over {
		err := fmt.Errorf("bootstrap: rank %d came after the end of the meeting", e.rank)
		if r.err != nil {
			err = fmt.Errorf("%w: %w", err, r.err)
		}
		return err
	}
	if r.size == 0 {
		r.size = e.size
		r.timer = time.AfterFunc(r.cfg.Timeout, func() {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.end(fmt.Errorf("bootstrap: after %v: %w", r.cfg.Timeout, r.missing()))
		})
	}
	if e.size != r.size {
		r.end(fmt.Errorf("bootstrap: rank %d at %s believes in %d ranks, others in %d", e.rank, e.ring, e.size, r.size))
		return r.err
	}
	if old, twice := r.came[e.rank]; twice && old != e {
		r.end(fmt.Errorf("bootstrap: rank %d came twice, from %s and %s", e.rank, old.ring, e.ring))
		return r.err
	}
	r.came[e.rank] = e
	r.hold(e, g)
	if len(r.came) == r.size {
		r.end(nil)
	}
	return nil
}

// end closes the meeting and tells all that came how it ended. The caller holds the lock.
func (r *Root) end(err error) {
	if r.over {
		return
	}
	r.over, r.err = true, err
	if r.timer != nil {
		r.timer.Stop()
	}
	came := make([]extInfo, 0, len(r.came))
	for _, e := range r.came {
		came = append(came, e)
	}
	r.work.Go(func() {
		defer close(r.met)
		r.answer(came, err)
	})
}

// answer tells each rank the address of the next, or why there is none, some ranks at a time.
func (r *Root) answer(came []extInfo, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), r.net.Deadlines.Total)
	defer cancel()
	next := make(chan extInfo)
	var tellers sync.WaitGroup
	for range min(32, len(came)) {
		tellers.Go(func() {
			for e := range next {
				r.tellOrLog(ctx, e, err)
				r.letGo(ctx, e.rank)
			}
		})
	}
	for _, e := range came {
		next <- e
	}
	close(next)
	tellers.Wait()
}

func (r *Root) tellOrLog(ctx context.Context, e extInfo, err error) {
	if fault := r.tell(ctx, e, err); fault != nil {
		r.net.Log.Warn("bootstrap: a rank could not be told of the meeting's end", "rank", e.rank, "addr", e.root, "err", fault)
	}
}

func (r *Root) tell(ctx context.Context, e extInfo, err error) error {
	c, fault := dial(ctx, listening(r.net), e.root, r.id.Magic())
	if fault != nil {
		return fault
	}
	defer c.Close()
	if err != nil {
		n := notice{rank: e.rank, kind: absent, text: strings.TrimPrefix(err.Error(), "bootstrap: ")}
		if lost := (*RankError)(nil); errors.As(err, &lost) {
			n.rank, n.kind = lost.Rank, kindOf(lost.Err)
		}
		return write(ctx, c, n.frame())
	}
	union := make([]byte, connectLen)
	putAddr(union, r.ringOf((e.rank+1)%e.size))
	return write(ctx, c, frame(union))
}

func (r *Root) ringOf(rank int) netip.AddrPort {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.came[rank].ring
}
