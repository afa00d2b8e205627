package nettransport

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/purerdma/purerdma/gpu"
	"github.com/purerdma/purerdma/ibverbs"
	devices "github.com/purerdma/purerdma/ibverbs/driver"
	"github.com/purerdma/purerdma/ibverbs/driver/memdriver"
	"github.com/purerdma/purerdma/mr"
	"github.com/purerdma/purerdma/socketboot/bootstrap"
	core "github.com/purerdma/purerdma/transport"
	"github.com/purerdma/purerdma/transport/driver"
)

// ranks is a job over devices in memory whose ranks are connected by NET.
type ranks struct {
	comms   []*core.Communicator
	engines []*core.Engine
}

const simpleBytes = 64 << 10

func newRanks(t *testing.T, n, channels int, fabric devices.Driver, wrap func(rank int, t core.Transport) core.Transport) *ranks {
	t.Helper()
	return newRanksWith(t, n, channels, fabric, wrap, func(int, *Config) {})
}

func newRanksWith(t *testing.T, n, channels int, fabric devices.Driver, wrap func(rank int, t core.Transport) core.Transport,
	set func(rank int, c *Config)) *ranks {
	t.Helper()
	jobs := bootstrap.InMemory(n, nil)
	r := &ranks{comms: make([]*core.Communicator, n)}
	var all sync.WaitGroup
	for rank := range n {
		c := Config{Find: []ibverbs.Option{ibverbs.WithDrivers(fabric)}, Net: localNet(), Log: quiet}
		set(rank, &c)
		net, err := New(c)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := net.Close(); err != nil {
				t.Error(err)
			}
		})
		engine := core.NewEngine()
		r.engines = append(r.engines, engine)
		t.Cleanup(func() {
			_ = engine.Close()
			if r.comms[rank] != nil {
				if err := r.comms[rank].Close(); err != nil {
					t.Error(err)
				}
			}
			_ = jobs[rank].Close()
		})
		all.Go(func() {
			v := core.Variables{Buffers: [driver.Protocols]int{16 << 10, 16 << 10, simpleBytes}}
			comm, err := core.New(t.Context(), core.Config{Job: jobs[rank], Channels: channels, Log: quiet, Variables: &v,
				Transports: []core.Transport{wrap(rank, net.Driver())}, Self: core.PeerInfo{HostHash: uint64(rank + 1)}})
			if err != nil {
				t.Error(err)
			}
			r.comms[rank] = comm
		})
	}
	all.Wait()
	if t.Failed() {
		t.FailNow()
	}
	return r
}

func (r *ranks) connect(ctx context.Context, links func(rank int) core.Links) []error {
	errs := make([]error, len(r.comms))
	var all sync.WaitGroup
	for rank, c := range r.comms {
		all.Go(func() { errs[rank] = c.Connect(ctx, links(rank)) })
	}
	all.Wait()
	return errs
}

// Ranks on different hosts are connected by NET in the set-up loop, and what a producer puts into the buffers of one end a consumer
// finds in those of the other, by SIMPLE and by LL, over many more steps than the buffers hold.
func TestNetInTheSetUpLoop(t *testing.T) {
	const n, channels = 3, 2
	ringOfRanks(t, newRanks(t, n, channels, memdriver.New(memdriver.Config{}), unchanged), n, channels)
}

func unchanged(_ int, t core.Transport) core.Transport { return t }

// ringOfRanks connects n ranks in a ring, moves operations around on each channel, and gives why rank 0 reaches rank 1 so.
func ringOfRanks(t *testing.T, r *ranks, n, channels int) core.Choice {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	for rank, err := range r.connect(ctx, func(rank int) core.Links { return core.Ring(rank, n, channels) }) {
		if err != nil {
			t.Fatalf("rank %d: %v", rank, err)
		}
	}
	why, ok := r.comms[0].Why(core.End{Peer: 1, Send: true})
	if !ok || why.Transport != "NET" {
		t.Errorf("%v", why)
	}
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	var all sync.WaitGroup
	for rank := range n {
		for channel := range channels {
			all.Go(func() {
				send := r.comms[rank].Connector(core.End{Peer: (rank + 1) % n, Channel: channel, Send: true})
				produce(t, ctx, r.engines[rank], send, rand.New(rand.NewPCG(seed, uint64(rank<<8|channel))))
			})
			all.Go(func() {
				from := (rank + n - 1) % n
				recv := r.comms[rank].Connector(core.End{Peer: from, Channel: channel})
				consume(t, ctx, r.engines[rank], recv, rand.New(rand.NewPCG(seed, uint64(from<<8|channel))))
			})
		}
	}
	all.Wait()
	for rank, e := range r.engines { // before the communicators, which close the connectors
		for channel := range channels {
			e.Drop(r.comms[rank].Connector(core.End{Peer: (rank + 1) % n, Channel: channel, Send: true}).Proxy())
			e.Drop(r.comms[rank].Connector(core.End{Peer: (rank + n - 1) % n, Channel: channel}).Proxy())
		}
	}
	return why
}

// plan is the operations of a connection: both ends draw the same.
type plan struct {
	op   core.Op
	data [][]byte // a slice each
}

func draw(r *rand.Rand) (ops []plan) {
	for range 12 {
		p := plan{op: core.Op{Protocol: core.Simple, SliceSteps: 1 << r.IntN(3)}}
		p.op.ChunkSteps = min(p.op.SliceSteps<<r.IntN(2), driver.Steps/2)
		if r.IntN(3) == 0 {
			p.op.Protocol, p.op.SliceSteps, p.op.ChunkSteps = core.LL, 1, 1
		}
		slices := 1 + r.IntN(12)
		p.op.Steps = slices * p.op.SliceSteps
		for range slices {
			most := simpleBytes / 8 * p.op.SliceSteps
			if p.op.Protocol == core.LL {
				most = 1 << 10 // half of a step's lines are flags
			}
			b := make([]byte, r.IntN(most+1)&^7)
			for i := range b {
				b[i] = byte(r.Uint32())
			}
			p.data = append(p.data, b)
		}
		ops = append(ops, p)
	}
	return ops
}

func wait(t *testing.T, ctx context.Context, what string, ready func() bool) bool {
	for !ready() {
		if ctx.Err() != nil {
			t.Errorf("%s: %v", what, ctx.Err())
			return false
		}
		time.Sleep(20 * time.Microsecond)
	}
	return true
}

func views(t *testing.T, c core.Connector) (*driver.Conn, *driver.SendMem, *driver.RecvMem) {
	head, err := mr.View[driver.SendMem](c.Conn().SendMem, 0)
	if err != nil {
		t.Error(err)
	}
	tail, err := mr.View[driver.RecvMem](c.Conn().RecvMem, 0)
	if err != nil {
		t.Error(err)
	}
	return c.Conn(), head, tail
}

// store and load are how the kernel reaches the buffers, in host memory or in the GPU's.
func store(t *testing.T, c *driver.Conn, p core.Protocol, slot int, data []byte) {
	if b := c.Buffers[p]; b != nil {
		copy(b.Bytes()[slot*b.Len()/driver.Steps:], data)
	} else if err := c.GPU.Context.WriteTo(c.GPU.Buffers[p]+gpu.Ptr(slot*c.GPU.Steps[p]), data); err != nil {
		t.Error(err)
	}
}

func load(t *testing.T, c *driver.Conn, p core.Protocol, slot, n int) []byte {
	if b := c.Buffers[p]; b != nil {
		return b.Bytes()[slot*b.Len()/driver.Steps:][:n]
	}
	b := make([]byte, n)
	if err := c.GPU.Context.ReadFrom(b, c.GPU.Buffers[p]+gpu.Ptr(slot*c.GPU.Steps[p])); err != nil {
		t.Error(err)
	}
	return b
}

// produce is the sending kernel.
func produce(t *testing.T, ctx context.Context, e *core.Engine, c core.Connector, r *rand.Rand) {
	conn, head, tail := views(t, c)
	step := uint64(0)
	for _, p := range draw(r) {
		ended := make(chan error, 1)
		e.Start(c.Proxy(), p.op, func(err error) { ended <- err })
		step = (step + uint64(p.op.ChunkSteps) - 1) / uint64(p.op.ChunkSteps) * uint64(p.op.ChunkSteps)
		for _, data := range p.data {
			slice := uint64(p.op.SliceSteps)
			slot := step % driver.Steps
			if !wait(t, ctx, "room", func() bool { return atomic.LoadUint64(&head.Head)+driver.Steps >= step+slice }) {
				return
			}
			if p.op.Protocol == core.LL {
				atomic.StoreInt64(&tail.ConnFIFO[slot].Size, int64(2*len(data)))
				lines := make([]byte, 2*len(data))
				storeLL(lines, data, uint32(step+1))
				store(t, conn, core.LL, int(slot), lines)
			} else {
				store(t, conn, core.Simple, int(slot), data)
				atomic.StoreInt64(&tail.ConnFIFO[slot].Size, int64(len(data)))
				atomic.StoreUint64(&tail.Tail, step+slice)
			}
			step += slice
		}
		select {
		case err := <-ended:
			if err != nil {
				t.Error(err)
				return
			}
		case <-ctx.Done():
			t.Error("a send did not end")
			return
		}
	}
}

// storeLL stores 8 bytes and two flags into each line of 16.
func storeLL(lines, data []byte, flag uint32) {
	for i := 0; i < len(data); i += 8 {
		line := lines[2*i:]
		copy(line, data[i:i+4])
		binary.LittleEndian.PutUint32(line[4:], flag)
		copy(line[8:], data[i+4:i+8])
		binary.LittleEndian.PutUint32(line[12:], flag)
	}
}

// consume is the receiving kernel.
func consume(t *testing.T, ctx context.Context, e *core.Engine, c core.Connector, r *rand.Rand) {
	conn, head, tail := views(t, c)
	step := uint64(0)
	for i, p := range draw(r) {
		ended := make(chan error, 1)
		e.Start(c.Proxy(), p.op, func(err error) { ended <- err })
		step = (step + uint64(p.op.ChunkSteps) - 1) / uint64(p.op.ChunkSteps) * uint64(p.op.ChunkSteps)
		atomic.StoreUint64(&head.Head, step)
		for _, want := range p.data {
			slice := uint64(p.op.SliceSteps)
			slot := step % driver.Steps
			if !wait(t, ctx, "data", func() bool { return atomic.LoadUint64(&tail.Tail) >= step+slice }) {
				return
			}
			size := atomic.LoadInt64(&tail.ConnFIFO[slot].Size)
			got := load(t, conn, p.op.Protocol, int(slot), int(size))
			if p.op.Protocol == core.LL {
				lines := make([]byte, 2*len(want))
				storeLL(lines, want, uint32(step+1))
				want = lines
			}
			if !bytes.Equal(got, want) {
				t.Errorf("operation %d, %v, step %d: %d bytes, want %d, or other ones", i, p.op.Protocol, step, len(got), len(want))
				return
			}
			step += slice
			atomic.StoreUint64(&head.Head, step)
		}
		select {
		case err := <-ended:
			if err != nil {
				t.Error(err)
				return
			}
		case <-ctx.Done():
			t.Error("a receive did not end")
			return
		}
	}
}

// failing is a transport whose connector number at fails.
type failing struct {
	core.Transport
	at      int
	connect bool // when it connects, else when it is set up
}

var errTest = errors.New("made to fail")

func (f *failing) Setup(r driver.Request, out *core.Blob) (core.Connector, error) {
	f.at--
	if f.at == 0 && !f.connect {
		return nil, errTest
	}
	c, err := f.Transport.Setup(r, out)
	if f.at == 0 {
		return failingConnector{c}, err
	}
	return c, err
}

type failingConnector struct{ core.Connector }

func (failingConnector) Connect(*core.Blob) (bool, error) { return false, errTest }

// A set-up that fails in the middle of TCP handshakes leaves no listener, connection or memory at any rank, and can be tried again.
func TestNetSetUpFailsAndIsTriedAgain(t *testing.T) {
	const n, channels = 3, 2
	for at := 1; at <= 2*channels; at++ {
		for _, connect := range []bool{false, true} {
			r := newRanks(t, n, channels, memdriver.New(memdriver.Config{}), func(rank int, t core.Transport) core.Transport {
				if rank == 1 {
					return &failing{t, at, connect}
				}
				return t
			})
			links := func(rank int) core.Links { return core.Ring(rank, n, channels) }
			ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
			for rank, err := range r.connect(ctx, links) {
				if e := (*core.RankError)(nil); !errors.As(err, &e) || e.Rank != 1 || (rank == 1) != errors.Is(err, errTest) {
					t.Errorf("rank %d: %v", rank, err)
				}
			}
			for rank, err := range r.connect(ctx, links) {
				if err != nil {
					t.Errorf("rank %d, again: %v", rank, err)
				}
			}
			cancel()
		}
	}
}

// A rank without a device says so, and its peers know.
func TestNetRefuses(t *testing.T) {
	net, err := New(Config{Find: []ibverbs.Option{ibverbs.WithDrivers(memdriver.New(memdriver.Config{}))}, Net: localNet(), Log: quiet})
	if err != nil {
		t.Fatal(err)
	}
	defer net.Close()
	with, without := net.Driver(), Absent(errors.New("no adapter"))
	here, there := driver.PeerInfo{Rank: 1}, driver.PeerInfo{Rank: 2}
	if err := errors.Join(with.Describe(&here), without.Describe(&there)); err != nil {
		t.Fatal(err)
	}
	if here.Net != "IB2.24.3-2.25.1" {
		t.Errorf("%q", here.Net)
	}
	if v := with.CanConnect(&here, &there); v.OK || v.Reason != "rank 2 has no device" {
		t.Errorf("%+v", v)
	}
	if v := without.CanConnect(&there, &here); v.OK || v.Reason != "rank 2 has no device: no adapter" {
		t.Errorf("%+v", v)
	}
	other := here
	other.Net = "IB2.30.3-2.30.7"
	if v := with.CanConnect(&here, &other); v.OK {
		t.Errorf("%+v", v)
	}
	if v := with.CanConnect(&here, &here); !v.OK {
		t.Errorf("%+v", v)
	}
	if _, err := without.Setup(driver.Request{}, new(driver.Blob)); !errors.Is(err, ErrNoNIC) {
		t.Error(err)
	}
	for _, bad := range [][driver.Protocols]int{{-8}, {0, 7}, {0, 0, MaxMessage + 8}} {
		if _, err := with.Setup(driver.Request{Send: true, Self: &here, Peer: &other, Buffers: bad}, new(driver.Blob)); err == nil {
			t.Errorf("buffers of %v", bad)
		}
	}
	c, err := with.Setup(driver.Request{Send: true, Self: &here, Peer: &other, Buffers: [driver.Protocols]int{8, 8, 8}}, new(driver.Blob))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Connect(new(driver.Blob)); err == nil {
		t.Error("a handle of zeros was dialed")
	}
	if err := errors.Join(c.Close(), c.Close()); err != nil {
		t.Error(err)
	}
}

func TestProxyRefusesOperations(t *testing.T) {
	e := &end{}
	if err := e.allocate([driver.Protocols]int{0, 0, 1 << 10}, places{}); err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	p := newProxy(e)
	for _, op := range []driver.Op{{}, {Steps: 1, SliceSteps: 1, ChunkSteps: 1}, {Protocol: 3, Steps: 1, SliceSteps: 1, ChunkSteps: 1},
		{Protocol: 2, Steps: 1, SliceSteps: 3, ChunkSteps: 3}, {Protocol: 2, Steps: 3, SliceSteps: 2, ChunkSteps: 2},
		{Protocol: 2, Steps: 2, SliceSteps: 2, ChunkSteps: 1}, {Protocol: 2, Steps: 1, SliceSteps: 1, ChunkSteps: 8},
		{Protocol: 2, Steps: 1, SliceSteps: 1, ChunkSteps: 1, Bytes: -1}} {
		if err := p.Start(op); err == nil {
			t.Errorf("%+v was taken", op)
		}
	}
	var err error
	for range maxOps {
		err = errors.Join(err, p.Start(driver.Op{Protocol: 2, Steps: 1, SliceSteps: 1, ChunkSteps: 1}))
	}
	if err != nil || p.Start(driver.Op{Protocol: 2, Steps: 1, SliceSteps: 1, ChunkSteps: 1}) == nil {
		t.Error(fmt.Sprint("limit of operations: ", err))
	}
}
