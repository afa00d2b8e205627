package nettransport

import (
	"fmt"
	"log/slog"
	"time"

	"github.com/purerdma/purerdma/gdr"
	"github.com/purerdma/purerdma/gpu"
	"github.com/purerdma/purerdma/ibverbs"
	"github.com/purerdma/purerdma/qp"
	"github.com/purerdma/purerdma/socketboot"
)

// Config is what New makes a Transport of. Every zero field is NCCL's default; ConfigFromEnv reads NCCL's variables.
type Config struct {
	// NICs is the logical NICs, each of one to four ports that share the work of a connection. nil makes one of each active
	// port of each device that is found; New opens those devices and Close closes them. Devices given here stay the caller's.
	NICs []NIC
	// HCA chooses among the devices found, in the syntax of NCCL_IB_HCA: "mlx5" is all whose names start so, "=mlx5_0:1" is
	// one port of one device, "^mlx5_2" is all others. It counts only while NICs is nil.
	HCA string
	// Find says where devices are looked for while NICs is nil: ibverbs.WithDrivers for one.
	Find []ibverbs.Option

	// QPsPerConn is the queue pairs of a connection for each device of the end that has more devices, 0 means 1
	// (NCCL_IB_QPS_PER_CONNECTION). Only the connector's counts: an acceptor adopts it. At a peer that is NCCL the listener's own
	// number must be the same.
	QPsPerConn int
	// Split cuts each message over all queue pairs of the connection, in place of queue pairs in turn
	// (NCCL_IB_SPLIT_DATA_ON_QPS). Both ends must have the same.
	Split bool
	// QP changes the attributes of queue pairs, qp.WithGIDIndex for one. RecvQP is applied after QP at the receiving end, whose
	// queue pairs carry the credits: a traffic class there is NCCL_IB_FIFO_TC.
	QP, RecvQP []qp.Option
	// EachQP, if it is not nil, gives further options of queue pair q of a connection: a flow label of its own, for networks that
	// spread flows. It must answer for every q below socketboot.MaxQPs: peers choose their number, and New asks for each.
	EachQP func(q int) []qp.Option
	// AdaptiveRouting says whether the network may reorder the packets of a message. Data longer than ARThreshold is then
	// written first, and the immediate data, which is not reordered, goes alone. ARThreshold 0 means 8192 bytes, -1 means none
	// (NCCL_IB_ADAPTIVE_ROUTING, NCCL_IB_AR_THRESHOLD).
	AdaptiveRouting Toggle
	ARThreshold     int
	// Inline lets the processor copy credits of one buffer into the request (NCCL_IB_USE_INLINE).
	Inline bool
	// Flush makes RecvComm.Flush read back over each device. Memory of the host needs none, so it is off by itself; behind the
	// seam it is on where the GPU needs it.
	Flush bool

	// GPU is the rank's GPU, nil without one; it stays the caller's, and open as long as the Transport. Behind the seam the buffers
	// of a connection then lie in its memory where all devices of the NIC reach that, and else in pinned host memory that it reaches.
	// GDR is what decides about it: GDR.Driver is the GPU's driver; GPU and Device are filled in.
	GPU gpu.Context
	GDR gdr.Config

	// Timeout bounds how long requests in flight outlive a peer whose process has ended: they then fail and name the peer. 0
	// means 2 s, a negative one is an error. Completions that arrive meanwhile count. A device's own retries (qp.WithTimeout) may end sooner, and on
	// Soft-RoCE never do.
	Timeout time.Duration
	// ProgressTimeout fails a connection on which requests are in flight and nothing has completed for so long; 0 means never, a
	// negative one is an error.
	// It is for jobs in which a receiver never waits long for its sender.
	ProgressTimeout time.Duration

	// Net is how the handshake reaches TCP, and the layout of its bytes.
	Net socketboot.Net
	// Log gets the choice of devices, asynchronous events and the first truncation of a connection; nil is slog.Default().
	Log *slog.Logger
}

// NIC is the ports of a logical NIC, one to four (eight with socketboot.Layout230). They have one link layer.
type NIC []Port

// Port is a port of an open device. Number 0 is the first active one.
type Port struct {
	Device *ibverbs.Context
	Number int
}

// Toggle is a choice that can be left to the library.
type Toggle uint8

// Values of a Toggle. Auto is NCCL's rule.
const (
	Auto Toggle = iota
	On
	Off
)

const (
	// MaxMessage is the longest message in bytes, NCCL_MAX_NET_SIZE.
	MaxMessage = 1 << 30
	// MaxRecvs is how many buffers one Irecv offers at most, NCCL_NET_IB_MAX_RECVS.
	MaxRecvs = 8
	// MaxRequests is how many requests of a connection can be in flight.
	MaxRequests = 256

	defaultTimeout     = 2 * time.Second
	defaultARThreshold = 8192
)

// withDefaults fills in what is zero and refuses what cannot be.
func (c Config) withDefaults() (Config, error) {
	set := func(field string, v, least, most int) error {
		if v < least || v > most {
			return configError(field, fmt.Sprintf("is %d, want %d to %d", v, least, most))
		}
		return nil
	}
	if c.QPsPerConn == 0 {
		c.QPsPerConn = 1
	}
	if c.ARThreshold == 0 {
		c.ARThreshold = defaultARThreshold
	}
	if c.Timeout == 0 {
		c.Timeout = defaultTimeout
	}
	if c.Log == nil {
		c.Log = slog.Default()
	}
	if c.Net.Log == nil {
		c.Net.Log = c.Log
	}
	if c.ARThreshold == -1 {
		c.ARThreshold = 0
	}
	err := set("QPsPerConn", c.QPsPerConn, 1, socketboot.MaxQPs)
	if err == nil {
		err = set("ARThreshold", c.ARThreshold, 0, MaxMessage)
	}
	if err == nil && (c.Timeout < 0 || c.ProgressTimeout < 0) {
		err = configError("Timeout, ProgressTimeout", "is negative")
	}
	if err == nil {
		if bad := c.Net.Check(); bad != nil {
			err = refusedConfig("Net", bad)
		}
	}
	if err == nil && c.AdaptiveRouting > Off {
		err = configError("AdaptiveRouting", "is none of Auto, On, Off")
	}
	if err == nil && c.Net.Layout > socketboot.Layout230 {
		err = configError("Net.Layout", "is none that package socketboot names")
	}
	if err == nil && c.GPU != nil && c.GDR.Driver == nil {
		err = configError("GDR.Driver", "is nil, and there is a GPU")
	}
	if err == nil && c.NICs != nil && c.HCA != "" {
		err = configError("HCA", "chooses among devices that are found, and NICs are given")
	}
	if err == nil {
		err = c.checkQPs()
	}
	return c, err
}
