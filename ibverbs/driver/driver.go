package driver

import (
	"context"

	"github.com/purerdma/purerdma/internal/offheap"
)

// Span is memory that a device may touch. A driver retains it for a
// registration and releases it afterwards, so that closing the buffer first
// unmaps nothing. Its methods are Addr, Pointer, Bytes and Len for where it is,
// Slice for a part, Kind for where it comes from, and Retain and Release.
type Span = offheap.Span

// Memory is *mr.Buffer. No other module can make a Span that is not empty, so
// Go memory cannot be registered.
type Memory interface{ Span() Span }

// Driver finds devices. Its value holds the world it looks at (kernel, sysfs,
// netlink, packet link); a test hands in another.
type Driver interface {
	Name() string
	// Devices lists what is there now. A broken entry is left out and joined
	// into the error beside the list, which is then still valid.
	Devices() ([]Device, error)
	// Watch sends after every change of the list until ctx is done, and returns
	// ctx's error. A send that would block is dropped: one token is enough.
	Watch(ctx context.Context, changed chan<- struct{}) error
}

// NetDeviceFinder is a Driver that knows to which device a net device belongs
// without opening any. That includes IPoIB, of which no GID tells.
type NetDeviceFinder interface {
	// FindNetDevice is the names of the RDMA devices, in the order of Devices. A
	// bond over two adapters belongs to both.
	FindNetDevice(netDevice string) []string
}

// Device is a device that was found.
type Device interface {
	// Info is a snapshot of when it was found.
	Info() DeviceInfo
	// Open gives an independent context on each call.
	Open() (Context, error)
}

// Context is an open device.
type Context interface {
	QueryDevice() (DeviceAttr, error)
	QueryPort(port int) (PortAttr, error)
	// GIDs is the used slots of the port's table, by rising index.
	GIDs(port int) ([]GIDEntry, error)
	// Probe is nil if f works here, else a *NotSupportedError.
	Probe(f Feature) error
	AllocPD() (PD, error)
	CreateCompChannel() (CompChannel, error)
	CreateCQ(c CQConfig) (CQ, error)
	// NextEvent waits for an asynchronous event and acknowledges it. One caller
	// at a time; Close wakes it with ErrClosed.
	NextEvent(ctx context.Context) (Event, error)
	// Close comes when all objects are closed.
	Close() error
}

// PD is a protection domain and makes its objects. Drivers embed BasePD.
type PD interface {
	// RegMR registers s at the IO virtual address iova, which has the same
	// offset within a page as s. The driver retains s until the MR is closed.
	RegMR(s Span, iova uint64, a Access) (MR, error)
	RegDMABuf(d DMABuf, a Access) (MR, error)
	CreateQP(c QPConfig) (QP, error)
	CreateSRQ(c SRQConfig) (SRQ, error)
	// CreateAH may sit in the kernel while it resolves the peer's address.
	CreateAH(a AHAttr) (AH, error)
	// AllocMW makes a type 2 memory window, bound to nothing.
	AllocMW() (MW, error)
	Close() error
	basePD()
}

// CQ is a completion queue. Drivers embed BaseCQ.
type CQ interface {
	// Poll fills wcs from the front and never blocks. A queue that lost entries
	// returns ErrCQOverrun.
	Poll(wcs []WC) (int, error)
	// Arm asks for one event on the channel at the next completion, or the next
	// solicited or failed one. Completions that are there already may give
	// none.
	Arm(solicitedOnly bool) error
	// Depth is how many completions fit, at least what was asked for.
	Depth() int
	// Resize comes under the lock of Poll and keeps what was not polled. It does
	// not go below that: EINVAL.
	Resize(depth int) error
	// Moderate delays events until count completions or periodMicros are there.
	Moderate(count, periodMicros int) error
	Close() error
	baseCQ()
}

// QP is a queue pair. Drivers embed BaseQP.
type QP interface {
	// PostSend writes wrs into the send queue and rings the doorbell once. With
	// n < len(wrs), wrs[n] was refused with err and wrs[:n] are posted. It is
	// not called before RTS; in Err requests are accepted and flushed.
	PostSend(wrs []SendWR) (n int, err error)
	// PostRecv is the same for the receive queue, from Init on.
	PostRecv(wrs []RecvWR) (n int, err error)
	Num() uint32
	Cap() QPCap
	Modify(a *QPAttr, mask QPMask) error
	Query() (QPAttr, error)
	Multicast(g GID, lid uint16, attach bool) error
	Close() error
	// Purge takes the QP's completions out of its CQs. It comes after a Modify
	// to Reset that succeeded and after a Close that destroyed the QP, and
	// neither blocks nor fails.
	Purge()
	baseQP()
}

// SRQ is a receive queue that several QPs share. Drivers embed BaseSRQ. Its
// calls of PostRecv come one at a time, and so do the others.
type SRQ interface {
	// PostRecv is as that of a QP.
	PostRecv(wrs []RecvWR) (n int, err error)
	// Cap is the sizes that were made, never less than what was asked for.
	Cap() SRQAttr
	// Query asks the device for the sizes and the limit that is armed, 0 for
	// none.
	Query() (SRQAttr, error)
	// SetLimit arms one SRQ_LIMIT_REACHED event for when fewer than n receives
	// are left; 0 disarms it.
	SetLimit(n int) error
	// Resize changes how many receives fit, not below what is posted.
	Resize(wr int) error
	// Close comes when no QP uses the SRQ. What was posted has no completion.
	Close() error
	baseSRQ()
}

// MemoryPoster is a QP or SRQ whose posts are loads and stores alone: no system call, no
// wait for anybody. They are made under a lock that costs half of a sync.Mutex and whose
// waiters look again rather than being woken.
type MemoryPoster interface {
	// PostsToMemory does nothing.
	PostsToMemory()
}

// CompChannel delivers completion events.
type CompChannel interface {
	// Wait returns the Cookie of a CQ that had an event, acknowledged. One
	// caller at a time; Close wakes it with ErrClosed.
	Wait(ctx context.Context) (cookie uint64, err error)
	Close() error
}

// MR is a memory registration. Close returns when no access is in progress. While a
// window is bound to it, it is ErrBusy and changes nothing (IBTA 10.6.7.2.6).
type MR interface {
	Keys() (lkey, rkey uint32)
	Close() error
}

// Reregisterer is an MR whose memory and rights can be changed. Others lack
// FeatureReregMR.
type Reregisterer interface {
	// Rereg gives the MR that takes the place of this one, whose keys may differ.
	// This one is of no use then and is not closed. If it fails, this one is still
	// there, if only to be closed. The new memory may be of the same. No request uses
	// the MR meanwhile.
	Rereg(c MRChange) (MR, error)
}

// MRChange is what Rereg changes; what is not marked stays as it is. One that marks
// nothing is EINVAL. Source: ibv_rereg_mr and enum ib_mr_rereg_flags.
type MRChange struct {
	PD        PD   // of the same context; nil if it stays
	SetMemory bool // Span and IOVA are new
	Span      Span
	IOVA      uint64
	SetAccess bool // Access is new
	Access    Access
}

// Changes says whether anything is marked.
func (c *MRChange) Changes() bool { return c.PD != nil || c.SetMemory || c.SetAccess }

// ECE is the options of enhanced connection establishment (struct ibv_ece), which
// two ends of one vendor agree on before a QP goes to RTR. Vendor 0 means none.
type ECE struct{ Vendor, Options, CompMask uint32 }

// ECEQP is a QP with such options. Others lack FeatureECE.
type ECEQP interface {
	// SetECE asks for options in Reset or Init, before the QP goes to RTR.
	SetECE(e ECE) error
	// QueryECE is what the device can, or after RTR what is in use.
	QueryECE() (ECE, error)
}

// MW is a memory window of type 2: the low 8 bits of its key are the program's,
// which gives a new value with each bind. The others stay, except that they may
// change when a QP that had requests on the window is closed or reset, which frees
// the window.
type MW interface {
	// RKey is a key of the window, of which the upper 24 bits count. It may be
	// called at any time.
	RKey() uint32
	Close() error
}

// AH is an address handle.
type AH interface{ Close() error }
