package transport

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/purerdma/purerdma/internal/cause"
	"github.com/purerdma/purerdma/socketboot/bootstrap"
	"github.com/purerdma/purerdma/transport/driver"
)

// Config is what New makes a Communicator of.
type Config struct {
	// Job is how ranks talk. It stays the caller's, who must not all-gather, nor send with tags of the loop, while Connect or New runs.
	Job bootstrap.Job
	// Transports in order of preference: P2P, SHM, NET; the same at all ranks. A rank that lacks what one needs still has it, and it
	// answers that it cannot: nettransport.Absent stands for NET where nettransport.New fails. CollNet, which cannot, is added. They stay the caller's.
	Transports []Transport
	Channels   int // 1 to MaxChannels; 0 means 1. The same at all ranks
	// Self is what is known of this rank: Identify's result, and its GPU. A zero one is identified.
	Self PeerInfo
	// Variables is what the environment says; nil reads the process's.
	Variables *Variables
	Log       *slog.Logger // the choice for each peer, and failures; nil is slog.Default()
}

// Communicator is this rank's end of the connections of a job. Its methods may be called from any goroutine.
type Communicator struct {
	job        bootstrap.Job
	rank, size int
	channels   int
	transports []Transport
	vars       Variables
	peers      []PeerInfo
	log        *slog.Logger
	life       context.Context
	end        context.CancelFunc

	turn chan struct{} // holds one token: the right to begin a round

	sendLanes, recvLanes []atomic.Pointer[lane] // of messages, by peer
	self                 self

	mu      sync.Mutex
	conns   map[End]*entry
	closed  bool
	working sync.WaitGroup
	rounds  uint32
}

// End is one end of a connection of this rank.
type End struct {
	Peer, Channel, ConnIndex int
	Send                     bool
}

func (e End) String() string {
	way := "receive from"
	if e.Send {
		way = "send to"
	}
	return fmt.Sprintf("%s rank %d on channel %d", way, e.Peer, e.Channel)
}

// entry is an end that is being made or has been.
type entry struct {
	end       End
	connector Connector
	choice    Choice
	peer      Blob // what the peer's end says
	done      bool
}

// New tells all ranks what each is, and checks that they fit. All ranks must call it.
func New(ctx context.Context, cfg Config) (*Communicator, error) {
	if ctx == nil {
		return nil, fmt.Errorf("transport: %w", cause.Of(ctx))
	}
	c, err := newCommunicator(&cfg)
	if err == nil {
		err = c.introduce(ctx, &cfg)
	}
	if err != nil {
		return nil, err
	}
	return c, nil
}

func newCommunicator(cfg *Config) (*Communicator, error) {
	if cfg.Job == nil {
		return nil, errors.New("transport: Config.Job is nil")
	}
	if cfg.Channels == 0 {
		cfg.Channels = 1
	}
	if cfg.Channels < 1 || cfg.Channels > MaxChannels {
		return nil, fmt.Errorf("transport: Config.Channels is %d, want 1 to %d", cfg.Channels, MaxChannels)
	}
	if cfg.Log == nil {
		cfg.Log = slog.Default()
	}
	c := &Communicator{job: cfg.Job, rank: cfg.Job.Rank(), size: cfg.Job.Size(), channels: cfg.Channels, log: cfg.Log,
		transports: append(slices.Clone(cfg.Transports), collNet{}), conns: map[End]*entry{}, turn: make(chan struct{}, 1)}
	c.sendLanes, c.recvLanes = make([]atomic.Pointer[lane], c.size), make([]atomic.Pointer[lane], c.size)
	c.turn <- struct{}{}
	c.life, c.end = context.WithCancel(context.Background())
	if cfg.Variables == nil {
		v, err := VariablesFromEnv(os.Getenv)
		if err != nil {
			return nil, err
		}
		cfg.Variables = &v
	}
	c.vars = *cfg.Variables
	if c.vars.RoundPeers <= 0 {
		c.vars.RoundPeers = defaultRoundPeers
	}
	return c, c.checkTransports()
}

func (c *Communicator) checkTransports() error {
	last := -1
	seen := map[string]bool{}
	for i, t := range c.transports {
		if t == nil {
			return fmt.Errorf("transport: Config.Transports[%d] is nil", i)
		}
		name := t.Name()
		if name == "" || len(name) > 15 || seen[name] {
			return fmt.Errorf("transport: Config.Transports has %q, want names of at most 15 bytes, each once", name)
		}
		seen[name] = true
		if i := slices.Index(order, name); i >= 0 {
			if i < last {
				return fmt.Errorf("transport: Config.Transports has %s after %s, want the order %s", name, order[last], strings.Join(order, ", "))
			}
			last = i
		}
	}
	return nil
}

// introduce exchanges the infos and what must be equal at all ranks: number of channels, sizes of buffers, steps of a batch, transports.
func (c *Communicator) introduce(ctx context.Context, cfg *Config) error {
	self := cfg.Self
	if self.HostHash == 0 {
		id, err := Identify(World{}, c.vars.HostID)
		if err != nil {
			return err
		}
		id.BusID, id.GPUUUID, id.ComputeCap = self.BusID, self.GPUUUID, self.ComputeCap
		self = id
	}
	self.Version, self.Rank = driver.ProtocolVersion, c.rank
	for _, t := range c.transports {
		if err := t.Describe(&self); err != nil {
			return fmt.Errorf("transport: %s: describe this rank: %w", t.Name(), err)
		}
	}
	mine, err := self.Append(nil)
	if err != nil {
		return fmt.Errorf("transport: this rank: %w", err)
	}
	mine = append(mine, c.terms()...)
	all, err := c.job.AllGather(ctx, mine)
	if err != nil {
		return fmt.Errorf("transport: exchange of peer infos: %w", err)
	}
	c.peers = make([]PeerInfo, c.size)
	for rank, b := range all {
		fail := func(err error) error { return &RankError{rank, c.job.Addr(rank), err} }
		if len(b) < driver.PeerInfoSize {
			return fail(fmt.Errorf("%w: %d bytes", driver.ErrPeerInfo, len(b)))
		}
		if c.peers[rank], err = driver.DecodePeerInfo(b[:driver.PeerInfoSize]); err != nil {
			return fail(err)
		}
		if c.peers[rank].Rank != rank {
			return fail(fmt.Errorf("%w: it says it is rank %d", driver.ErrPeerInfo, c.peers[rank].Rank))
		}
		if theirs := b[driver.PeerInfoSize:]; !bytes.Equal(theirs, c.terms()) {
			return fail(fmt.Errorf("%w: %s there, %s at rank %d", ErrConfig, termsInWords(theirs), termsInWords(c.terms()), c.rank))
		}
	}
	c.sharedGPU()
	return nil
}

// sharedGPU logs that ranks have one GPU, which NCCL refuses and which costs time.
func (c *Communicator) sharedGPU() {
	first := map[[16]byte]int{}
	for rank := range c.peers {
		uuid := c.peers[rank].GPUUUID
		if uuid == ([16]byte{}) {
			continue
		}
		if other, shared := first[uuid]; shared {
			c.log.Info("transport: ranks share a GPU", "ranks", []int{other, rank})
			return
		}
		first[uuid] = rank
	}
}

// terms is what must be equal at all ranks.
func (c *Communicator) terms() []byte {
	var b []byte
	le := binary.LittleEndian
	b = le.AppendUint32(b, uint32(c.channels))
	b = le.AppendUint32(b, uint32(c.vars.RoundPeers))
	for _, n := range c.vars.Buffers {
		b = le.AppendUint32(b, uint32(n))
	}
	for _, t := range c.transports {
		b = append(append(b, t.Name()...), 0)
	}
	return b
}

func termsInWords(b []byte) string {
	const numbers = 2 + driver.Protocols
	if len(b) < 4*numbers {
		return "terms that cannot be read"
	}
	le := binary.LittleEndian
	names := strings.Split(strings.TrimRight(string(b[4*numbers:]), "\x00"), "\x00")
	return fmt.Sprintf("%d channels, batches of %d, buffers of %d, %d, %d bytes (LL, LL128, SIMPLE), transports %.200q",
		le.Uint32(b), le.Uint32(b[4:]), le.Uint32(b[8:]), le.Uint32(b[12:]), le.Uint32(b[16:]), names)
}

// Rank is this rank, Size the number of ranks.
func (c *Communicator) Rank() int { return c.rank }

// Size is the number of ranks.
func (c *Communicator) Size() int { return c.size }

// Peer is what a rank says of itself, nil if there is no such rank. It is not to be changed.
func (c *Communicator) Peer(rank int) *PeerInfo {
	if rank < 0 || rank >= len(c.peers) {
		return nil
	}
	return &c.peers[rank]
}

// Connector is an end that has been connected, nil if it has not.
func (c *Communicator) Connector(e End) Connector {
	c.mu.Lock()
	defer c.mu.Unlock()
	if got := c.conns[e]; got != nil {
		return got.connector
	}
	return nil
}

// Why says which transport connects an end and why the better ones were refused, at this rank or at the peer; false if it is not
// connected.
func (c *Communicator) Why(e End) (Choice, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if got := c.conns[e]; got != nil {
		return got.choice, true
	}
	return Choice{}, false
}

// Candidate says which transport this rank would take for a peer, without connecting. The peer may still refuse it.
func (c *Communicator) Candidate(peer int) (Choice, error) {
	if peer < 0 || peer >= c.size || peer == c.rank {
		return Choice{}, fmt.Errorf("transport: rank %d of %d has no peer %d", c.rank, c.size, peer)
	}
	_, choice := c.choose(peer, 0)
	return choice, nil
}

// voteGrace bounds how long Connect waits beyond its context when this rank has voted that it succeeded: its ends may be connected, and
// the outcome is due.
const voteGrace = 5 * time.Second

// Connect connects the ends that l names and that are not connected yet. All ranks must call it, those with nothing to connect
// too. If it fails at any rank it fails at all: each returns the same [RankError], whose cause is at hand at the rank that failed, closes
// what the call has made, and can call Connect again. When a rank dies, leaves or cannot be reached the error is the job's, and the job is
// over.
//
// When ctx ends Connect returns, and the call fails at all ranks as soon as they come to it; the next Connect waits for that.
func (c *Communicator) Connect(ctx context.Context, l Links) error {
	if ctx == nil {
		return fmt.Errorf("transport: connect: %w", cause.Of(ctx))
	}
	select {
	case <-c.turn:
	case <-c.life.Done():
		return fmt.Errorf("transport: %w", ErrClosed)
	case <-ctx.Done():
		return fmt.Errorf("transport: connect: %w", cause.Of(ctx))
	}
	c.mu.Lock()
	if c.closed || ctx.Err() != nil {
		err := cause.Of(ctx)
		if c.closed {
			err = ErrClosed
		}
		c.mu.Unlock()
		c.turn <- struct{}{}
		return fmt.Errorf("transport: %w", err)
	}
	c.rounds++
	r := newRound(c, ctx, l, c.rounds)
	outcome := make(chan error, 1)
	c.working.Go(func() {
		err := r.run()
		c.turn <- struct{}{}
		outcome <- err
	})
	c.mu.Unlock()
	select {
	case err := <-outcome:
		return err
	case <-ctx.Done():
	}
	if r.voted.Load() {
		late := time.NewTimer(voteGrace)
		defer late.Stop()
		select {
		case err := <-outcome:
			return err
		case <-late.C:
		}
	}
	select {
	case err := <-outcome:
		return err
	default:
		return fmt.Errorf("transport: connect: %w, waiting for %s", cause.Of(ctx), *r.waits.Load())
	}
}

// commit takes over the ends of a round.
func (c *Communicator) commit(made []*entry) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return ErrClosed
	}
	for _, e := range made {
		c.conns[e.end] = e
	}
	c.addLanes(made)
	return nil
}

// Close closes all connectors. Peers find out as their transports do; a Connect under way fails, and so do messages. The job stays open. A
// second call is nil.
func (c *Communicator) Close() error {
	c.mu.Lock()
	if c.closed {
		c.mu.Unlock()
		return nil
	}
	c.closed = true
	conns := c.conns
	c.conns = map[End]*entry{}
	c.mu.Unlock()
	c.end()
	c.working.Wait()
	c.self.end(ErrClosed)
	for _, l := range c.lanes() {
		_ = l.cut(ErrClosed)
	}
	var errs []error
	for _, l := range c.lanes() {
		errs = append(errs, l.free())
	}
	for _, e := range conns {
		if err := e.connector.Close(); err != nil {
			errs = append(errs, fmt.Errorf("transport: close %s: %w", e.end, err))
		}
	}
	return errors.Join(errs...)
}
