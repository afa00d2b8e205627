package transport_test

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/purerdma/purerdma/gpu"
	"github.com/purerdma/purerdma/gpu/gputest"
	"github.com/purerdma/purerdma/ibverbs"
	"github.com/purerdma/purerdma/ibverbs/driver/memdriver"
	"github.com/purerdma/purerdma/nettransport"
	"github.com/purerdma/purerdma/p2ptransport"
	"github.com/purerdma/purerdma/shmtransport"
	"github.com/purerdma/purerdma/socketboot"
	"github.com/purerdma/purerdma/socketboot/bootstrap"
	"github.com/purerdma/purerdma/transport"
)

// seen is a machine's GPUs as a process sees those with the given numbers: two GPUs, and two instances of a third.
func seen(t *testing.T, numbers ...int) (devices []gpu.DeviceInfo) {
	t.Helper()
	for _, i := range numbers {
		d := gpu.DeviceInfo{UUID: "GPU-00000000-0000-0000-0000-00000000000" + string(rune('a'+i)), MIG: i > 1}
		if d.MIG {
			d.UUID = "MIG" + d.UUID[3:]
		}
		bus, err := gpu.ParseBusID("0000:0" + string(rune('1'+min(i, 2))) + ":00.0")
		ok(t, err)
		d.PCI = bus
		devices = append(devices, d)
	}
	return devices
}

// What two ranks with GPUs are connected by, and why it is not what comes before.
func TestChoiceBetweenGPUs(t *testing.T) {
	none := func(int, int) bool { return false }
	noVMM := map[gpu.Attribute]int{gpu.HasVMM: 0}
	for name, c := range map[string]struct {
		visible   [2][]int // to each rank, which has the first; {0, 1} and {1, 0} where nothing is said
		peers     func(a, b int) bool
		attrs     map[gpu.Attribute]int
		noIPC     bool // the driver refuses legacy handles
		process   bool // they are two processes
		hosts     bool // NCCL_HOSTID differs
		transport string
		says      string // in the choice's words
	}{
		"one process":                      {transport: "P2P"},
		"two processes":                    {process: true, transport: "P2P"},
		"one GPU, two processes":           {visible: [2][]int{{0}, {0}}, process: true, transport: "P2P", says: "the same GPU"},
		"no peer access":                   {peers: none, transport: "SHM", says: "not P2P: the GPUs do not reach each other's memory"},
		"no peer access, two processes":    {peers: none, process: true, transport: "SHM", says: "not P2P: the GPUs do not reach each other's memory"},
		"two instances of a GPU":           {visible: [2][]int{{2, 3}, {3, 2}}, peers: none, transport: "SHM", says: "not P2P: the GPUs do not reach each other's memory"},
		"devices renumbered":               {visible: [2][]int{{0, 1}, {1, 0}}, process: true, transport: "P2P"},
		"devices hidden from each other":   {visible: [2][]int{{0}, {1}}, process: true, transport: "P2P", says: "hidden"},
		"VMM refused":                      {attrs: noVMM, process: true, transport: "P2P", says: "by legacy handle: the GPU's driver is too old"},
		"VMM and IPC refused":              {attrs: noVMM, noIPC: true, process: true, transport: "SHM", says: "too old to share memory by descriptor, and refuses a legacy handle: cuIpcGetMemHandle"},
		"VMM and IPC refused, one process": {attrs: noVMM, noIPC: true, transport: "P2P"},
		"driver too old for descriptors": {attrs: map[gpu.Attribute]int{gpu.HasFDHandles: 0}, process: true, transport: "P2P",
			says: "by legacy handle: the GPU's driver is too old"},
		"host ids differ": {process: true, hosts: true, transport: "NET", says: "not P2P: different hosts (rank 0); not SHM: different hosts"},
	} {
		t.Run(name, func(t *testing.T) {
			if c.visible[0] == nil {
				c.visible = [2][]int{{0, 1}, {1, 0}}
			}
			fabric := ibverbs.WithDrivers(memdriver.New(memdriver.Config{}))
			var comms [2]*transport.Communicator
			jobs := bootstrap.InMemory(2, nil)
			var made [2][]transport.Transport
			for rank := range made {
				machine := gputest.New(gputest.Config{Devices: seen(t, c.visible[rank]...), Peers: c.peers, Attributes: c.attrs})
				g, err := machine.Open(0)
				ok(t, err)
				t.Cleanup(func() {
					ok(t, g.Close())
					if left := machine.Left(); len(left) > 0 {
						t.Errorf("left on rank %d's GPUs: %v", rank, left)
					}
				})
				if c.noIPC {
					machine.Fail("IPCHandle", 1, &gpu.Error{Call: "cuIpcGetMemHandle", Name: "CUDA_ERROR_NOT_SUPPORTED", Code: 801})
				}
				p2p, err := p2ptransport.New(p2ptransport.Config{Driver: machine, GPU: g, Log: quiet})
				ok(t, err)
				shm := shmtransport.New(shmtransport.Config{GPU: g})
				nics, err := nettransport.New(nettransport.Config{Find: []ibverbs.Option{fabric}, Log: quiet, Net: socketboot.Net{Bind: netip.MustParseAddrPort("127.0.0.1:0")}})
				ok(t, err)
				t.Cleanup(func() {
					ok(t, p2p.Close())
					ok(t, shm.Close())
					ok(t, nics.Close())
				})
				made[rank] = []transport.Transport{p2p, shm, nics.Driver()}
			}
			each(2, func(rank int) {
				host := "host"
				if c.hosts {
					host += string(rune('0' + rank))
				}
				self, err := transport.Identify(transport.World{}, host)
				if err == nil && c.process {
					self.PIDHash += uint64(rank)
				}
				if err == nil {
					comms[rank], err = transport.New(t.Context(), transport.Config{Job: jobs[rank], Log: quiet, Self: self, Transports: made[rank]})
				}
				if err != nil {
					t.Error(err)
				}
			})
			for rank, comm := range comms {
				if comm == nil {
					continue
				}
				choice, err := comm.Candidate(1 - rank)
				if err != nil || choice.Transport != c.transport || rank == 0 && !strings.Contains(choice.String(), c.says) {
					t.Errorf("rank %d: %v, %v; want %s, %q", rank, choice, err, c.transport, c.says)
				}
				ok(t, comm.Close())
				ok(t, jobs[rank].Close())
			}
		})
	}
}
