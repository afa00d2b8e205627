package transport_test

import (
	"context"
	"encoding/binary"
	"log/slog"
	"math/rand/v2"
	"net/netip"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/purerdma/purerdma/ibverbs"
	"github.com/purerdma/purerdma/ibverbs/driver/memdriver"
	"github.com/purerdma/purerdma/nettransport"
	"github.com/purerdma/purerdma/shmtransport"
	"github.com/purerdma/purerdma/socketboot"
	"github.com/purerdma/purerdma/socketboot/bootstrap"
	"github.com/purerdma/purerdma/transport"
)

var quiet = slog.New(slog.DiscardHandler)

// crew is the ranks of a job as goroutines, each with every other connected for messages.
type crew []*transport.Communicator

// plan says where a crew's ranks are and how they are connected.
type plan struct {
	hosts    []string // of the ranks: shared memory on each, the network between them
	channels int      // 0 means 1
	buffer   int      // NCCL_BUFFSIZE; 0 means NCCL's
	alone    bool     // not connected
}

// oneHost is n ranks that share memory, hosts is n that do not.
func oneHost(n int) []string { return make([]string, n) }
func hosts(n int) (names []string) {
	for i := range n {
		names = append(names, strconv.Itoa(i))
	}
	return names
}

func newCrew(t testing.TB, p plan) crew {
	t.Helper()
	n := len(p.hosts)
	fabric := memdriver.New(memdriver.Config{})
	jobs := bootstrap.InMemory(n, nil)
	c := make(crew, n)
	variables, err := transport.VariablesFromEnv(func(string) string { return "" })
	if err != nil {
		t.Fatal(err)
	}
	if variables.Buffers = [3]int{1 << 14, 0, 4 << 20}; p.buffer > 0 {
		variables.Buffers[transport.Simple] = p.buffer
	}
	each(n, func(rank int) {
		shm := shmtransport.New(shmtransport.Config{})
		t.Cleanup(func() {
			if err := shm.Close(); err != nil {
				t.Error(err)
			}
		})
		nics, err := nettransport.New(nettransport.Config{Find: []ibverbs.Option{ibverbs.WithDrivers(fabric)}, Log: quiet,
			Net: socketboot.Net{Bind: netip.MustParseAddrPort("127.0.0.1:0")}})
		if err != nil {
			t.Error(err)
			return
		}
		t.Cleanup(func() {
			if err := nics.Close(); err != nil {
				t.Error(err)
			}
		})
		self, err := transport.Identify(transport.World{}, "host "+p.hosts[rank])
		if err == nil {
			c[rank], err = transport.New(t.Context(), transport.Config{Job: jobs[rank], Channels: max(p.channels, 1), Log: quiet,
				Variables: &variables, Self: self, Transports: []transport.Transport{shm, nics.Driver()}})
		}
		if err == nil && !p.alone {
			err = c[rank].Connect(t.Context(), transport.Pairs(rank, n, max(p.channels, 1)))
		}
		if err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(func() {
		for _, comm := range c {
			if comm == nil {
				continue
			}
			if err := comm.Close(); err != nil {
				t.Error(err)
			}
		}
	})
	if t.Failed() {
		t.FailNow()
	}
	return c
}

// each runs f for all ranks at once.
func each(n int, f func(rank int)) {
	var all sync.WaitGroup
	for rank := range n {
		all.Go(func() { f(rank) })
	}
	all.Wait()
}

// short is a context for what must end soon, or hangs: long enough for a busy machine.
func short(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	t.Cleanup(cancel)
	return ctx
}

// fill makes the bytes of a message that both ends can tell by its number.
func fill(b []byte, number uint64) []byte {
	r := rand.New(rand.NewPCG(number, 1))
	whole := b
	for ; len(b) >= 8; b = b[8:] {
		binary.LittleEndian.PutUint64(b, r.Uint64())
	}
	for i := range b {
		b[i] = byte(r.Uint64())
	}
	return whole
}
