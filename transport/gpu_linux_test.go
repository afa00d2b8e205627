package transport_test

import (
	"bytes"
	"context"
	"errors"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/purerdma/purerdma/gdr"
	"github.com/purerdma/purerdma/gpu"
	"github.com/purerdma/purerdma/gpu/gputest"
	"github.com/purerdma/purerdma/ibverbs"
	"github.com/purerdma/purerdma/ibverbs/softroce"
	"github.com/purerdma/purerdma/internal/racetest"
	"github.com/purerdma/purerdma/nettransport"
	"github.com/purerdma/purerdma/p2ptransport"
	"github.com/purerdma/purerdma/shmtransport"
	"github.com/purerdma/purerdma/socketboot"
	"github.com/purerdma/purerdma/socketboot/bootstrap"
	"github.com/purerdma/purerdma/transport"
)

// gpuCrew is two ranks, each with a GPU.
type gpuCrew struct {
	machine *gputest.Driver
	gpus    [2]gpu.Context
	comms   [2]*transport.Communicator
}

// gpuWay is how they are connected.
type gpuWay struct {
	machine   gputest.Config
	net       bool // they are on two hosts
	transport func(t *testing.T, c *gpuCrew, rank int) transport.Transport
	onGPU     bool // the connection's buffers
	says      string
}

func overP2P(config p2ptransport.Config) func(*testing.T, *gpuCrew, int) transport.Transport {
	return func(t *testing.T, c *gpuCrew, rank int) transport.Transport {
		config.Driver, config.GPU, config.Log = c.machine, c.gpus[rank], quiet
		p, err := p2ptransport.New(config)
		ok(t, err)
		t.Cleanup(func() { ok(t, p.Close()) })
		return p
	}
}

func overSHM(config func(gpu.Context) shmtransport.Config) func(*testing.T, *gpuCrew, int) transport.Transport {
	return func(t *testing.T, c *gpuCrew, rank int) transport.Transport {
		s := shmtransport.New(config(c.gpus[rank]))
		t.Cleanup(func() { ok(t, s.Close()) })
		return s
	}
}

func overNet(t *testing.T) func(*testing.T, *gpuCrew, int) transport.Transport {
	devices := ibverbs.WithDrivers(softroce.New(softroce.Config{Addrs: []netip.Addr{netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("10.0.0.2")},
		Network: softroce.OnSim(softroce.NewSim(softroce.SimConfig{}))}))
	return func(t *testing.T, c *gpuCrew, rank int) transport.Transport {
		dev, err := ibverbs.Open("soft"+string(rune('0'+rank)), devices)
		ok(t, err)
		t.Cleanup(func() { ok(t, dev.Close()) })
		n, err := nettransport.New(nettransport.Config{NICs: []nettransport.NIC{{{Device: dev}}}, GPU: c.gpus[rank], GDR: gdr.Config{Driver: c.machine}, Log: quiet,
			Net: socketboot.Net{Bind: netip.MustParseAddrPort("127.0.0.1:0")}})
		ok(t, err)
		t.Cleanup(func() { ok(t, n.Close()) })
		return n.Driver()
	}
}

func ok(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func gpuWays(t *testing.T, test func(t *testing.T, w gpuWay)) {
	two := gputest.Config{Devices: make([]gpu.DeviceInfo, 2)}
	for name, w := range map[string]gpuWay{
		"P2P DIRECT": {machine: two, transport: overP2P(p2ptransport.Config{}), onGPU: true, says: "P2P"},
		"P2P CUMEM":  {machine: two, transport: overP2P(p2ptransport.Config{NoDirect: true}), onGPU: true, says: "P2P"},
		"SHM":        {machine: two, transport: overSHM(func(gpu.Context) shmtransport.Config { return shmtransport.Config{} }), says: "SHM"},
		"SHM, registered": {machine: two, transport: overSHM(func(g gpu.Context) shmtransport.Config { return shmtransport.Config{GPU: g} }),
			says: "SHM"},
		"NET, GPUDirect": {machine: two, net: true, transport: overNet(t), onGPU: true, says: "DMA-BUF: the GPU, the kernel and the device have it"},
		"NET, staged": {machine: gputest.Config{Devices: two.Devices, OpaqueDMABuf: true}, net: true, transport: overNet(t),
			says: "staged through pinned host memory"},
	} {
		t.Run(name, func(t *testing.T) { test(t, w) })
	}
}

func newGPUCrew(t *testing.T, w gpuWay) *gpuCrew {
	t.Helper()
	w.machine.Devices = slices.Clone(w.machine.Devices)
	c := &gpuCrew{machine: gputest.New(w.machine)}
	t.Cleanup(func() {
		for _, g := range c.gpus {
			ok(t, g.Close())
		}
		if left := c.machine.Left(); len(left) > 0 {
			t.Errorf("left on the GPUs: %v", left)
		}
	})
	var transports [2]transport.Transport
	for rank := range c.gpus {
		var err error
		c.gpus[rank], err = c.machine.Open(rank)
		ok(t, err)
		transports[rank] = w.transport(t, c, rank)
	}
	variables := transport.Variables{Buffers: [3]int{1 << 14, 0, 1 << 18}}
	jobs := bootstrap.InMemory(2, nil)
	each(2, func(rank int) {
		self := transport.PeerInfo{}
		if w.net {
			self.HostHash = uint64(rank + 1)
		}
		var err error
		c.comms[rank], err = transport.New(t.Context(), transport.Config{Job: jobs[rank], Channels: 2, Log: quiet, Variables: &variables, Self: self,
			Transports: []transport.Transport{transports[rank]}})
		if err == nil {
			err = c.comms[rank].Connect(t.Context(), transport.Pairs(rank, 2, 2))
		}
		if err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(func() {
		for rank, comm := range c.comms {
			if comm != nil {
				ok(t, comm.Close())
			}
			ok(t, jobs[rank].Close())
		}
	})
	if t.Failed() {
		t.FailNow()
	}
	if why, _ := c.comms[0].Why(transport.End{Peer: 1, Send: true}); !strings.Contains(why.Transport+" "+why.Reason, w.says) {
		t.Errorf("connected by %v, want %s", why, w.says)
	}
	return c
}

// memory is n bytes of a rank's GPU, at an odd address.
func (c *gpuCrew) memory(t testing.TB, rank, n int) transport.GPUMemory {
	p, err := c.gpus[rank].Alloc(n + 64)
	ok(t, err)
	t.Cleanup(func() { ok(t, c.gpus[rank].Free(p)) })
	return transport.GPUMemory{Context: c.gpus[rank], Ptr: p + 3, Bytes: n}
}

func cut(m transport.GPUMemory, n int) transport.GPUMemory {
	m.Bytes = n
	return m
}

func put(m transport.GPUMemory, number uint64) (transport.GPUMemory, error) {
	return m, m.Context.WriteTo(m.Ptr, fill(make([]byte, m.Bytes), number))
}

func holds(m transport.GPUMemory, number uint64) (bool, error) {
	b := make([]byte, m.Bytes)
	err := m.Context.ReadFrom(b, m.Ptr)
	return bytes.Equal(b, fill(make([]byte, m.Bytes), number)), err
}

// Messages of all sizes arrive whole and in their order, both ways at once, whichever of the ends is memory of a GPU.
func TestMessagesOfGPUs(t *testing.T) {
	const most = 3<<18 + 1
	gpuWays(t, func(t *testing.T, w gpuWay) {
		c, ctx := newGPUCrew(t, w), short(t)
		var memory [2][2]transport.GPUMemory
		for rank := range memory {
			memory[rank] = [2]transport.GPUMemory{c.memory(t, rank, most), c.memory(t, rank, most)}
		}
		var all sync.WaitGroup
		for rank := range 2 {
			all.Go(func() {
				for i, n := range edges {
					if n > most {
						break
					}
					number := uint64(i*2 + rank)
					err := c.comms[rank].Send(ctx, 1-rank, fill(make([]byte, n), number))
					if m, e := put(cut(memory[rank][0], n), number+1000); err == nil && e == nil {
						err = errors.Join(c.comms[rank].SendGPU(ctx, 1-rank, m), c.comms[rank].SendGPU(ctx, 1-rank, m))
					} else {
						err = errors.Join(err, e)
					}
					if err != nil {
						t.Error(err)
						return
					}
				}
			})
			all.Go(func() {
				b, m := make([]byte, most), memory[1-rank][1]
				for i, want := range edges {
					if want > most {
						break
					}
					number := uint64(i*2 + rank)
					for which, number := range []uint64{number, number + 1000, number + 1000} {
						var n int
						var err error
						var same bool
						if which == 2 {
							n, err = c.comms[1-rank].Recv(ctx, rank, b)
							same = bytes.Equal(b[:n], fill(make([]byte, n), number))
						} else if n, err = c.comms[1-rank].RecvGPU(ctx, rank, m); err == nil {
							same, err = holds(cut(m, n), number)
						}
						if err != nil || n != want || !same {
							t.Errorf("message %d: %d bytes, want %d, the same: %v, %v", which, n, want, same, err)
							return
						}
					}
				}
			})
		}
		all.Wait()
	})
}

// Where the connection's buffers are a GPU's, messages cannot be made and read in place, and the connection goes on.
func TestInPlaceOnGPUs(t *testing.T) {
	gpuWays(t, func(t *testing.T, w gpuWay) {
		c, ctx := newGPUCrew(t, w), short(t)
		if got := c.comms[0].MaxAcquire(1); (got == 0) != w.onGPU {
			t.Errorf("at most %d bytes", got)
		}
		if !w.onGPU {
			return
		}
		_, err := c.comms[0].Acquire(ctx, 1, 8)
		_, _, next := c.comms[1].Next(ctx, 0)
		if !errors.Is(err, transport.ErrGPUMemory) || !errors.Is(next, transport.ErrGPUMemory) {
			t.Errorf("%v, %v", err, next)
		}
		one(t, ctx, c)
	})
}

// one moves one message.
func one(t *testing.T, ctx context.Context, c *gpuCrew) {
	t.Helper()
	m, err := put(c.memory(t, 0, 1000), 7)
	ok(t, err)
	to := c.memory(t, 1, 1000)
	each(2, func(rank int) {
		var err error
		if rank == 0 {
			err = c.comms[0].SendGPU(ctx, 1, m)
		} else {
			_, err = c.comms[1].RecvGPU(ctx, 0, to)
		}
		if err != nil {
			t.Error(err)
		}
	})
	if same, err := holds(to, 7); !same || err != nil {
		t.Errorf("other bytes: %v", err)
	}
}

// A message too long for the memory, memory that is none, a rank with itself, groups.
func TestGPUMemoryEdges(t *testing.T) {
	gpuWays(t, func(t *testing.T, w gpuWay) {
		c, ctx := newGPUCrew(t, w), short(t)
		m, err := put(c.memory(t, 0, 100_000), 3)
		ok(t, err)
		there := c.memory(t, 1, 100_000)
		each(2, func(rank int) {
			if rank == 0 {
				if err := c.comms[0].SendGPU(ctx, 1, m); err != nil {
					t.Error(err)
				}
				return
			}
			var size *transport.SizeError
			if _, err := c.comms[1].RecvGPU(ctx, 0, cut(there, 99_999)); !errors.As(err, &size) || *size != (transport.SizeError{Message: 100_000, Buffer: 99_999}) {
				t.Error(err)
			}
		})
		one(t, ctx, c)
		for _, bad := range []transport.GPUMemory{{}, {Context: c.gpus[0], Bytes: -1}} {
			if err := c.comms[0].SendGPU(ctx, 1, bad); !errors.Is(err, syscall.EINVAL) || !strings.Contains(err.Error(), "rank 1") {
				t.Error(err)
			}
			if _, err := c.comms[0].RecvGPU(ctx, 1, bad); !errors.Is(err, syscall.EINVAL) {
				t.Error(err)
			}
		}
		g := c.comms[0].NewGroup()
		own := c.memory(t, 0, 100_000)
		g.SendGPU(0, m)
		got, bad := g.RecvGPU(0, own), g.SendGPU(1, transport.GPUMemory{})
		if err := g.Wait(ctx); !errors.Is(err, syscall.EINVAL) || g.Received(got) != 100_000 || g.Err(bad) == nil || g.Err(got) != nil {
			t.Error(err)
		}
		if same, err := holds(own, 3); !same || err != nil {
			t.Errorf("other bytes: %v", err)
		}
	})
}

// A rank that closes ends the messages of its peer, which waits for it in either direction.
func TestCloseEndsMessagesOfGPUs(t *testing.T) {
	gpuWays(t, func(t *testing.T, w gpuWay) {
		c, ctx := newGPUCrew(t, w), short(t)
		one(t, ctx, c)
		m := c.memory(t, 1, 8<<20)
		var waits sync.WaitGroup
		for _, f := range []func() error{
			func() error { return c.comms[1].SendGPU(ctx, 0, m) }, // more than there is room for
			func() error { _, err := c.comms[1].RecvGPU(ctx, 0, m); return err },
		} {
			waits.Go(func() {
				if err := f(); err == nil || ctx.Err() != nil {
					t.Errorf("after the peer's Close: %v", err)
				}
			})
		}
		ok(t, c.comms[0].Close())
		waits.Wait()
	})
}

// Each call of the GPU's driver fails once, as often as it comes, during messages: the error names the call, the GPU and the rank, and
// nothing is left.
func TestEachGPUCallFailsDuringMessages(t *testing.T) {
	gpuWays(t, func(t *testing.T, w gpuWay) {
		for _, method := range []string{"NewStream", "Copy", "Synchronize", "ReadFrom", "WriteTo"} {
			for nth := 1; nth <= 4; nth++ {
				if failOnce(t, w, method, nth) || racetest.Enabled || testing.Short() {
					break
				}
			}
		}
	})
}

// failOnce moves a message during which one call fails; last tells that it did not come so often.
func failOnce(t *testing.T, w gpuWay, method string, nth int) (last bool) {
	t.Run(method, func(t *testing.T) {
		c, ctx := newGPUCrew(t, w), short(t)
		m, err := put(c.memory(t, 0, 300_000), 3)
		ok(t, err)
		there := c.memory(t, 1, 300_000)
		called := c.machine.Calls()[method]
		c.machine.Fail(method, nth, &gpu.Error{Call: method, Name: "PLANTED", Code: 999, Device: 0})
		var errs [2]error
		each(2, func(rank int) {
			if rank == 0 {
				errs[0] = c.comms[0].SendGPU(ctx, 1, m)
			} else {
				_, errs[1] = c.comms[1].RecvGPU(ctx, 0, there)
			}
			if errs[rank] != nil {
				if err := c.comms[rank].Close(); err != nil {
					t.Error(err)
				}
			}
		})
		calls := c.machine.Calls()[method] - called
		c.machine.Fail(method, 1<<30, nil) // Close is not to find what is planted
		if calls < nth {
			last = true
			ok(t, errors.Join(errs[:]...))
			return
		}
		err = errors.Join(errs[:]...)
		if err == nil || !strings.Contains(err.Error(), method+" on GPU 0: PLANTED (999)") || !strings.Contains(err.Error(), "rank ") || ctx.Err() != nil {
			t.Errorf("%s %d: %v", method, nth, err)
		}
	})
	return last
}
