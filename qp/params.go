package qp

import (
	"crypto/rand"
	"encoding/binary"
	"fmt"
	"syscall"
	"time"

	"github.com/purerdma/purerdma/ibverbs"
)

// Params is all attributes of a queue pair. Defaults gives NCCL's.
type Params struct {
	Port      int // local port, from 1
	GIDIndex  int // in the port's table; -1 chooses by GID
	PKeyIndex int // in the port's table of partition keys

	// GID is what the GID must be like where GIDIndex is -1.
	GID GIDWant

	// SRQ is where receives come from, nil for a queue of the QP's own; with it
	// RecvDepth counts for nothing.
	SRQ *ibverbs.SRQ

	SendDepth, RecvDepth int // requests
	SGEs                 int // entries of a request, in either queue
	Inline               int // bytes

	SendPSN   uint32 // 24 bits, the first that this end sends
	FlowLabel uint32 // 20 bits; 0 lets the device choose. It decides the UDP source port

	TrafficClass uint8 // of the IP header
	ServiceLevel uint8 // 4 bits; the VLAN priority on RoCE
	HopLimit     uint8 // Linux replaces it by that of the route on RoCE

	Timeout  uint8 // for an acknowledgement: 4.096 µs × 2^Timeout; 0 waits for ever
	Retry    uint8 // repeats without acknowledgement, 0 to 7
	RNRRetry uint8 // repeats while the peer has no receive posted, 0 to 7; 7 is for ever
	MinRNR   uint8 // code of the time a peer waits before such a repeat; 12 is 0.64 ms

	MaxRdAtomic     uint8 // reads and atomics in flight that this end starts
	MaxDestRdAtomic uint8 // and that it takes from the peer

	// MTU is the largest path MTU to use, 0 for that of the port. The smaller
	// of both ends is used.
	MTU ibverbs.MTU
	// Access is what the peer may do to this end's registered memory.
	Access ibverbs.Access

	// RTRRetries is how often the change to RTR is tried again after ETIMEDOUT,
	// which says that the peer's address did not resolve. Before try n+1 it
	// waits n times RTRRetryWait.
	RTRRetries   int
	RTRRetryWait time.Duration
}

// Defaults is the attributes that NCCL 2.25 sets if no NCCL_IB_ variable is
// set.
func Defaults() Params {
	return Params{
		Port: 1, GIDIndex: -1,
		SendDepth: 512, RecvDepth: 256, SGEs: 1,
		HopLimit: 255,
		Timeout:  20, Retry: 7, RNRRetry: 7, MinRNR: 12,
		MaxRdAtomic: 1, MaxDestRdAtomic: 1,
		Access:     ibverbs.RemoteWrite,
		RTRRetries: 34, RTRRetryWait: 100 * time.Millisecond,
	}
}

// Option changes one thing of Params.
type Option func(*Params)

// WithParams replaces all of them; start from Defaults.
func WithParams(all Params) Option { return func(p *Params) { *p = all } }

// WithPort takes the local port, from 1.
func WithPort(port int) Option { return func(p *Params) { p.Port = port } }

// WithGIDIndex takes one GID of the port's table (NCCL_IB_GID_INDEX).
func WithGIDIndex(i int) Option { return func(p *Params) { p.GIDIndex = i } }

// WithGID says what the GID must be like (NCCL_IB_ADDR_FAMILY and
// NCCL_IB_ADDR_RANGE).
func WithGID(w GIDWant) Option { return func(p *Params) { p.GID = w } }

// WithPKeyIndex takes one partition key of the port's table (NCCL_IB_PKEY).
func WithPKeyIndex(i int) Option { return func(p *Params) { p.PKeyIndex = i } }

// WithDepth sets how many requests each queue holds.
func WithDepth(send, recv int) Option {
	return func(p *Params) { p.SendDepth, p.RecvDepth = send, recv }
}

// WithSRQ has the queue pair take its receives from s, which several may share.
func WithSRQ(s *ibverbs.SRQ) Option { return func(p *Params) { p.SRQ = s } }

// WithSGEs sets how many pieces of memory a request gathers or scatters.
func WithSGEs(n int) Option { return func(p *Params) { p.SGEs = n } }

// WithInline sets how many bytes of inline data a request takes. NCCL has 64
// with NCCL_IB_USE_INLINE.
func WithInline(bytes int) Option { return func(p *Params) { p.Inline = bytes } }

// WithSendPSN sets the first packet sequence number that this end sends; the
// peer must learn it from Info.
func WithSendPSN(psn uint32) Option { return func(p *Params) { p.SendPSN = psn } }

// WithRandomPSN takes the first packet sequence number from random, of which 24
// bits count; nil is crypto/rand. Old packets of an earlier connection are then
// unlikely to be taken for this one's, and strangers have to guess.
func WithRandomPSN(random func() uint32) Option {
	if random == nil {
		random = randomNumber
	}
	return func(p *Params) { p.SendPSN = random() & maxPSN }
}

func randomNumber() uint32 {
	var b [4]byte
	_, _ = rand.Read(b[:]) // it never fails, says its documentation
	return binary.NativeEndian.Uint32(b[:])
}

// WithFlowLabel sets the flow label, from which the kernel and most devices
// derive the UDP source port (UDPSourcePort): QPs with different labels take
// different paths through a network that spreads flows.
func WithFlowLabel(label uint32) Option { return func(p *Params) { p.FlowLabel = label } }

// WithUDPSourcePort sets the flow label that leads to port, 49152 to 65535; New
// refuses others, to which no label leads.
func WithUDPSourcePort(port uint16) Option {
	return func(p *Params) {
		p.FlowLabel = FlowLabelFor(port)
		if port < minSourcePort {
			p.FlowLabel = maxFlowLabel + 1
		}
	}
}

// WithTrafficClass sets the traffic class (NCCL_IB_TC).
func WithTrafficClass(tc uint8) Option { return func(p *Params) { p.TrafficClass = tc } }

// WithServiceLevel sets the service level (NCCL_IB_SL).
func WithServiceLevel(sl uint8) Option { return func(p *Params) { p.ServiceLevel = sl } }

// WithHopLimit sets the hop limit.
func WithHopLimit(n uint8) Option { return func(p *Params) { p.HopLimit = n } }

// WithTimeout waits 4.096 µs × 2^exp for an acknowledgement (NCCL_IB_TIMEOUT)
// and repeats up to retry times, at most 7 (NCCL_IB_RETRY_CNT). A peer that is
// gone shows after somewhat more than (retry+1) times the wait; with NCCL's 20
// and 7 that is half a minute.
func WithTimeout(exp, retry uint8) Option {
	return func(p *Params) { p.Timeout, p.Retry = exp, retry }
}

// WithRNR repeats up to retry times while the peer has no receive posted, 7 for
// ever, and has the peer's requests wait by the code minTimer.
func WithRNR(retry, minTimer uint8) Option {
	return func(p *Params) { p.RNRRetry, p.MinRNR = retry, minTimer }
}

// WithRdAtomic sets how many reads and atomics may be in flight: started by this
// end, and taken from the peer.
func WithRdAtomic(start, take uint8) Option {
	return func(p *Params) { p.MaxRdAtomic, p.MaxDestRdAtomic = start, take }
}

// WithMTU uses no larger path MTU than m.
func WithMTU(m ibverbs.MTU) Option { return func(p *Params) { p.MTU = m } }

// WithAccess sets what the peer may do. NCCL's is RemoteWrite.
func WithAccess(a ibverbs.Access) Option { return func(p *Params) { p.Access = a } }

// WithRTRRetries tries the change to RTR n times more after ETIMEDOUT, waiting
// wait, 2 × wait, 3 × wait … between (NCCL_IB_MQP_RETRY_CNT and
// NCCL_IB_MQP_RETRY_SLEEP_MSEC).
func WithRTRRetries(n int, wait time.Duration) Option {
	return func(p *Params) { p.RTRRetries, p.RTRRetryWait = n, wait }
}

const (
	maxQPN       = 1<<24 - 1
	maxPSN       = 1<<24 - 1
	maxFlowLabel = 1<<20 - 1
)

// Check is EINVAL with the first field that cannot be on any device. New does it first.
func (p *Params) Check() error {
	for _, f := range [...]struct {
		bad  bool
		what string
	}{
		{p.Port < 1 || p.Port > 255, "Port is not within 1 to 255"},
		{p.GIDIndex < -1 || p.GIDIndex > 1<<16, "GIDIndex is not -1 or an index"},
		{p.PKeyIndex < 0 || p.PKeyIndex > 1<<16-1, "PKeyIndex is not an index"},
		{p.SendDepth < 1 || p.RecvDepth < 0, "SendDepth is below 1 or RecvDepth below 0"},
		{p.SGEs < 0 || p.Inline < 0, "SGEs or Inline is negative"},
		{p.SendPSN > maxPSN, "SendPSN has more than 24 bits"},
		{p.FlowLabel > maxFlowLabel, "FlowLabel has more than 20 bits, or a UDP source port is below 49152"},
		{p.ServiceLevel > 15, "ServiceLevel is above 15"},
		{p.Timeout > 31, "Timeout is above 31"},
		{p.Retry > 7, "Retry is above 7"},
		{p.RNRRetry > 7, "RNRRetry is above 7"},
		{p.MinRNR > 31, "MinRNR is above 31"},
		{p.MTU != 0 && !p.MTU.Valid(), "MTU is not one of 1 to 5"},
		{p.RTRRetries < 0 || p.RTRRetryWait < 0, "RTRRetries or RTRRetryWait is negative"},
	} {
		if f.bad {
			return fmt.Errorf("%s: %w", f.what, syscall.EINVAL)
		}
	}
	return nil
}
