package transport_test

import (
	"errors"
	"net/netip"
	"sync"
	"testing"

	"github.com/purerdma/purerdma/ibverbs"
	"github.com/purerdma/purerdma/ibverbs/driver/memdriver"
	"github.com/purerdma/purerdma/nettransport"
	"github.com/purerdma/purerdma/shmtransport"
	"github.com/purerdma/purerdma/socketboot"
	"github.com/purerdma/purerdma/socketboot/bootstrap"
	"github.com/purerdma/purerdma/transport"
)

// Five ranks on three hosts, which NCCL_HOSTID tells apart: real shared memory on each, the network between them, and a rank whose host
// has no device, which is refused by all but its neighbours in memory.
func TestSharedMemoryAndNetworkTogether(t *testing.T) {
	hosts := []string{"one", "one", "two", "two", "two"}
	n := len(hosts)

	fabric := memdriver.New(memdriver.Config{})
	jobs := bootstrap.InMemory(n, nil)
	comms := make([]*transport.Communicator, n)
	var all sync.WaitGroup
	for rank := range n {
		shm := shmtransport.New(shmtransport.Config{})
		net := nettransport.Absent(errors.New("no adapter"))
		if rank != 4 {
			nics, err := nettransport.New(nettransport.Config{Find: []ibverbs.Option{ibverbs.WithDrivers(fabric)}, Log: quiet,
				Net: socketboot.Net{Bind: netip.MustParseAddrPort("127.0.0.1:0")}})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() {
				if err := nics.Close(); err != nil {
					t.Error(err)
				}
			})
			net = nics.Driver()
		}
		self, err := transport.Identify(transport.World{}, hosts[rank])
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if comms[rank] != nil {
				if err := comms[rank].Close(); err != nil {
					t.Error(err)
				}
			}
			if err := shm.Close(); err != nil {
				t.Error(err)
			}
		})
		all.Go(func() {
			v, err := transport.VariablesFromEnv(func(string) string { return "" })
			if err == nil {
				v.Buffers = [3]int{1 << 14, 0, 1 << 16}
				comms[rank], err = transport.New(t.Context(), transport.Config{Job: jobs[rank], Channels: 2, Log: quiet, Variables: &v, Self: self,
					Transports: []transport.Transport{shm, net}})
			}
			if err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if t.Failed() {
		t.FailNow()
	}
	connect := func(links func(rank int) transport.Links) []error {
		errs := make([]error, n)
		for rank := range n {
			all.Go(func() { errs[rank] = comms[rank].Connect(t.Context(), links(rank)) })
		}
		all.Wait()
		return errs
	}

	// A ring needs rank 4 to reach rank 0, on another host and without a device.
	for rank, err := range connect(func(rank int) transport.Links { return transport.Ring(rank, n, 2) }) {
		if err == nil || !errors.Is(err, transport.ErrNoTransport) && !errors.Is(err, transport.ErrPeerFailed) {
			t.Errorf("rank %d: %v", rank, err)
		}
		t.Log(err)
	}

	// All pairs that can.
	links := func(rank int) transport.Links {
		l := transport.Mesh(rank, n, 2)
		for peer := range l.Send {
			if (rank == 4 || peer == 4) && hosts[rank] != hosts[peer] {
				delete(l.Send, peer)
				delete(l.Recv, peer)
			}
		}
		return l
	}
	for rank, err := range connect(links) {
		if err != nil {
			t.Errorf("rank %d: %v", rank, err)
		}
	}
	for rank := range n {
		for peer := range links(rank).Send {
			want := "NET"
			if hosts[rank] == hosts[peer] {
				want = "SHM"
			}
			for _, send := range []bool{true, false} {
				if why, ok := comms[rank].Why(transport.End{Peer: peer, Channel: 1, ConnIndex: 1, Send: send}); !ok || why.Transport != want {
					t.Errorf("rank %d to %d: %v", rank, peer, why)
				}
			}
		}
	}
}
