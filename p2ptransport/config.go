package p2ptransport

import (
	"log/slog"

	"github.com/purerdma/purerdma/gpu"
	"github.com/purerdma/purerdma/topo"
)

// Config is a rank's GPU and what the user has set.
type Config struct {
	Driver gpu.Driver
	// GPU is the rank's; it stays the caller's, and open as long as the transport.
	GPU gpu.Context
	// System gives the distance between GPUs; nil, or one without the peer's, leaves
	// it unknown, which does not count against the peer.
	System *topo.System
	// Level is the greatest distance allowed; topo.LOC is the default, PXB
	// (NCCL_P2P_LEVEL).
	Level topo.Path
	// Disable refuses all peers but those on the same GPU (NCCL_P2P_DISABLE=1).
	Disable bool
	// NoIntermediate does not meet on a GPU over which NVLink joins the two (NCCL_NVB_DISABLE=1).
	NoIntermediate bool
	// NoDirect treats ranks of one process as if they were of two
	// (NCCL_P2P_DIRECT_DISABLE=1).
	NoDirect bool
	// NoCUMEM shares memory by legacy handles also where descriptors work
	// (NCCL_CUMEM_ENABLE=0).
	NoCUMEM bool
	// Read makes receivers fetch instead of senders store: nil is NCCL's rule, over
	// NVLink between GPUs of compute capability 8.0 (NCCL_P2P_READ_ENABLE).
	Read *bool
	// Log is slog.Default() if nil.
	Log *slog.Logger
}
