package transport

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"testing"

	"github.com/purerdma/purerdma/internal/leaktest"
	"github.com/purerdma/purerdma/socketboot/bootstrap"
	"github.com/purerdma/purerdma/transport/driver"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

// fabric is where fake transports of all ranks of a test meet.
type fabric struct {
	mu     sync.Mutex
	open   map[string]*fakeConnector // by end
	setups map[int]int               // by rank
	fault  func(rank int, what string, e End) error
	slow   int // calls of Connect before it is done
}

func newFabric() *fabric { return &fabric{open: map[string]*fakeConnector{}, setups: map[int]int{}} }

// none checks that nothing is left open.
func (f *fabric) none(t testing.TB) {
	t.Helper()
	f.mu.Lock()
	defer f.mu.Unlock()
	for name := range f.open {
		t.Errorf("left open: %s", name)
	}
}

// fake is a Transport of one rank. Its connectors check that what comes is from the very end that they belong to.
type fake struct {
	name string
	f    *fabric
	rank int
	can  func(self, peer *PeerInfo) Verdict
}

func (t *fake) Name() string                  { return t.name }
func (t *fake) Describe(self *PeerInfo) error { self.Net = "fake"; return nil }
func (t *fake) CanConnect(self, peer *PeerInfo) Verdict {
	if t.can == nil {
		return Verdict{OK: true}
	}
	return t.can(self, peer)
}

type fakeConnector struct {
	t       *fake
	id      string
	want    Blob
	end     End
	calls   int
	connect bool
	closed  bool
}

func fakeBlob(transport string, rank, peer, channel, conn int, send bool) (b Blob) {
	le := binary.LittleEndian
	copy(b[:], transport)
	le.PutUint32(b[16:], uint32(rank))
	le.PutUint32(b[20:], uint32(peer))
	le.PutUint32(b[24:], uint32(channel))
	le.PutUint32(b[28:], uint32(conn))
	if send {
		b[32] = 1
	}
	b[255] = 0xee
	return b
}

func (t *fake) Setup(r driver.Request, out *Blob) (Connector, error) {
	t.f.mu.Lock()
	defer t.f.mu.Unlock()
	e := End{Peer: r.Peer.Rank, Channel: r.Channel, ConnIndex: r.ConnIndex, Send: r.Send}
	t.f.setups[t.rank]++
	if r.Self.Rank != t.rank || r.Buffers != driver.DefaultBuffers || *out != (Blob{}) {
		return nil, fmt.Errorf("asked for rank %d with %v", r.Self.Rank, r.Buffers)
	}
	if t.f.fault != nil {
		if err := t.f.fault(t.rank, "setup", e); err != nil {
			return nil, err
		}
	}
	*out = fakeBlob(t.name, t.rank, e.Peer, e.Channel, e.ConnIndex, e.Send)
	c := &fakeConnector{t: t, id: fmt.Sprintf("%s rank %d: %s, connection %d", t.name, t.rank, e, e.ConnIndex), end: e,
		want: fakeBlob(t.name, e.Peer, t.rank, e.Channel, e.ConnIndex, !e.Send)}
	if t.f.open[c.id] != nil {
		return nil, errors.New("set up twice: " + c.id)
	}
	t.f.open[c.id] = c
	return c, nil
}

func (c *fakeConnector) Connect(in *Blob) (bool, error) {
	c.t.f.mu.Lock()
	defer c.t.f.mu.Unlock()
	if c.closed || c.connect {
		return false, errors.New("called after its end: " + c.id)
	}
	if c.t.f.fault != nil {
		if err := c.t.f.fault(c.t.rank, "connect", c.end); err == errNever {
			return false, nil
		} else if err != nil {
			return false, err
		}
	}
	if !bytes.Equal(in[:], c.want[:]) {
		return false, fmt.Errorf("%s got the blob of another end: %x", c.id, in[:40])
	}
	c.calls++
	c.connect = c.calls > c.t.f.slow
	return c.connect, nil
}

var errNever = errors.New("not yet, and never")

func (c *fakeConnector) Conn() *Conn         { return &driver.Conn{} }
func (c *fakeConnector) Proxy() driver.Proxy { return nil }
func (c *fakeConnector) Close() error {
	c.t.f.mu.Lock()
	defer c.t.f.mu.Unlock()
	if !c.closed {
		c.closed = true
		delete(c.t.f.open, c.id)
	}
	return nil
}

var quiet = slog.New(slog.DiscardHandler)

// world is the ranks of a test.
type world struct {
	f     *fabric
	jobs  []*bootstrap.Memory
	comms []*Communicator
}

// newWorld makes communicators over the in-memory bootstrap. change may alter each rank's Config.
func newWorld(t testing.TB, n int, pause func(int), change func(rank int, c *Config)) *world {
	t.Helper()
	w := &world{f: newFabric(), jobs: bootstrap.InMemory(n, pause), comms: make([]*Communicator, n)}
	each(n, func(rank int) {
		c := Config{Job: w.jobs[rank], Channels: 4, Log: quiet, Variables: defaultVariables(), Self: PeerInfo{HostHash: 1, PIDHash: uint64(rank)},
			Transports: []Transport{&fake{name: "SHM", f: w.f, rank: rank}}}
		if change != nil {
			change(rank, &c)
		}
		comm, err := New(context.Background(), c)
		if err != nil {
			t.Errorf("rank %d: %v", rank, err)
		}
		w.comms[rank] = comm
	})
	if t.Failed() {
		t.FailNow()
	}
	return w
}

func defaultVariables() *Variables {
	v, _ := VariablesFromEnv(func(string) string { return "" })
	return &v
}

// close closes all and checks that nothing is left.
func (w *world) close(t testing.TB) {
	t.Helper()
	for _, c := range w.comms {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	}
	for _, j := range w.jobs {
		_ = j.Close()
	}
	w.f.none(t)
}

// connect calls Connect at all ranks.
func (w *world) connect(ctx context.Context, links func(rank int) Links) []error {
	errs := make([]error, len(w.comms))
	each(len(w.comms), func(rank int) { errs[rank] = w.comms[rank].Connect(ctx, links(rank)) })
	return errs
}

func each(n int, f func(rank int)) {
	var all sync.WaitGroup
	for rank := range n {
		all.Go(func() { f(rank) })
	}
	all.Wait()
}

func ring(n, channels int) func(int) Links {
	return func(rank int) Links { return Ring(rank, n, channels) }
}
func mesh(n, channels int) func(int) Links {
	return func(rank int) Links { return Mesh(rank, n, channels) }
}

// connected checks that exactly the ends of links are there at every rank.
func (w *world) connected(t testing.TB, links func(rank int) Links) {
	t.Helper()
	want := 0
	for rank, c := range w.comms {
		l := links(rank)
		for send, masks := range map[bool]map[int]uint64{true: l.Send, false: l.Recv} {
			for peer, mask := range masks {
				for channel := range MaxChannels {
					if mask&(1<<channel) == 0 {
						continue
					}
					want++
					e := End{Peer: peer, Channel: channel, ConnIndex: l.ConnIndex, Send: send}
					got, _ := c.Connector(e).(*fakeConnector)
					if got == nil || !got.connect || got.closed || got.end != e || got.t.rank != rank {
						t.Errorf("rank %d: %s is not connected", rank, e)
					}
				}
			}
		}
	}
	w.f.mu.Lock()
	defer w.f.mu.Unlock()
	if len(w.f.open) != want {
		t.Errorf("%d ends are open, want %d", len(w.f.open), want)
	}
}
