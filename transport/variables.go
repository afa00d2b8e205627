package transport

import (
	"github.com/purerdma/purerdma/internal/ncclenv"
	"github.com/purerdma/purerdma/topo"
	"github.com/purerdma/purerdma/transport/driver"
	"os"

	"fmt"
)

// Variables is what NCCL's environment variables say to the set-up.
type Variables struct {
	P2PDisable      bool       // NCCL_P2P_DISABLE, for whoever makes the P2P transport
	P2PLevel        *topo.Path // NCCL_P2P_LEVEL, likewise; nil = not set
	SHMDisable      bool       // NCCL_SHM_DISABLE
	NetDisableIntra bool       // NCCL_NET_DISABLE_INTRA
	HostID          string     // NCCL_HOSTID
	RoundPeers      int        // NCCL_CONNECT_ROUND_MAX_PEERS
	// Buffers is NCCL_LL_BUFFSIZE, NCCL_LL128_BUFFSIZE, NCCL_BUFFSIZE.
	Buffers [driver.Protocols]int
}

// defaultRoundPeers is NCCL's.
const defaultRoundPeers = 128

// VariablesFromEnv reads them (nil is os.Getenv). The error names the variable. `purerdma variables` lists what each means.
func VariablesFromEnv(getenv func(string) string) (Variables, error) {
	if getenv == nil {
		getenv = os.Getenv
	}
	r := ncclenv.Reader{Getenv: getenv, Wrap: func(name string, err error) error { return fmt.Errorf("transport: %s %w", name, err) }}
	v := Variables{RoundPeers: defaultRoundPeers, Buffers: driver.DefaultBuffers, HostID: r.Text("NCCL_HOSTID")}
	r.Flag("NCCL_P2P_DISABLE", func(on bool) { v.P2PDisable = on })
	r.Flag("NCCL_SHM_DISABLE", func(on bool) { v.SHMDisable = on })
	r.Flag("NCCL_NET_DISABLE_INTRA", func(on bool) { v.NetDisableIntra = on })
	r.Number("NCCL_CONNECT_ROUND_MAX_PEERS", 1, 1<<16, func(n int) { v.RoundPeers = n })
	if s := r.Text("NCCL_P2P_LEVEL"); s != "" {
		level, err := topo.ParseLevel(s)
		if err != nil {
			r.Refuse("NCCL_P2P_LEVEL", s, "LOC, NVL, PIX, PXB, PHB, SYS or a number from 0 to 5")
		}
		v.P2PLevel = &level
	}
	size := func(p Protocol, step int) func(int) {
		return func(n int) { v.Buffers[p] = max(n/step, 1) * step }
	}
	// A step is an eighth, and a line of the protocol must not be cut.
	r.Number("NCCL_LL_BUFFSIZE", 1, 1<<30, size(LL, 16*driver.Steps))
	r.Number("NCCL_LL128_BUFFSIZE", 1, 1<<30, size(LL128, 128*driver.Steps))
	r.Number("NCCL_BUFFSIZE", 1, 1<<30, size(Simple, 128*driver.Steps))
	return v, r.Err()
}
