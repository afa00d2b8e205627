//go:build hw && linux

package main

import (
	"testing"

	"github.com/purerdma/purerdma/ibverbs"
	"github.com/purerdma/purerdma/ibverbs/softroce"
)

// Two ranks on the machine's GPU by the network, which does not reach its memory, and by shared memory.
func TestHWRanksOnOneGPU(t *testing.T) {
	d, g, err := open(0)
	if err != nil {
		t.Skip(err)
	}
	t.Logf("GPU %s %s", g.Device().Name, g.Device().UUID)
	t.Run("NET, staged", func(t *testing.T) {
		net := ibverbs.WithDrivers(softroce.New(softroce.Config{}))
		onOneGPU(t, d, g, net, "staged through pinned host memory: DMA-BUF was refused", 64<<20+1)
	})
	t.Run("SHM, registered", func(t *testing.T) { onOneGPU(t, d, g, nil, "", 64<<20+1) })
	if err := g.Close(); err != nil {
		t.Error(err)
	}
}

// GPU memory is exported and registered through gdr at any offset and length, piece by piece where it has two allocations, with a device
// that takes every descriptor.
func TestHWRegister(t *testing.T) {
	d, g, err := open(0)
	if err != nil {
		t.Skip(err)
	}
	onDevice(t, d, g)
	if err := g.Close(); err != nil {
		t.Error(err)
	}
}

// Send and Recv of a communicator take the GPU's memory.
func TestHWMessages(t *testing.T) {
	d, g, err := open(0)
	if err != nil {
		t.Skip(err)
	}
	messagesOnOneGPU(t, d, g, ibverbs.WithDrivers(softroce.New(softroce.Config{})), 64<<20+1)
	must(t, g.Close())
}

// Two processes on the machine's GPU exchange messages over P2P, by descriptor and by legacy handle.
func TestHWMessagesOfTwoProcesses(t *testing.T) {
	d, g, err := open(0)
	if err != nil {
		t.Skip(err)
	}
	messagesOfTwoProcesses(t, d, g, messageOrders{Most: 64 << 20, Rated: 50})
	must(t, g.Close())
}

// A rank of the processor exchanges messages with kernels of the machine's GPU.
func TestHWProcessor(t *testing.T) {
	_, g, err := open(0)
	if err != nil {
		t.Skip(err)
	}
	withProcessor(t, g, 2000, 64<<20+1)
	must(t, g.Close())
}
