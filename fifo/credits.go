package fifo

import (
	"github.com/purerdma/purerdma/internal/mmio"
	"github.com/purerdma/purerdma/mr"
)

// CTS is one receive buffer offered, clear to send (NCCL's ncclIbSendFifo).
type CTS struct {
	// Addr is the IO virtual address of the buffer, never 0.
	Addr uint64
	// Size is its size in bytes, at most MaxSize. A longer message is cut.
	Size uint64
	// RKeys are its keys, one for each device of the receiver. The first is
	// never 0.
	RKeys [MaxDevs]uint32
	// NReqs is how many buffers the row offers, the same in each of them.
	NReqs uint32
	// Tag is what a send must carry to go into this buffer.
	Tag uint32
	// Idx is the number of the message plus 1.
	Idx uint64
}

// Credits is the ring of offers at the sender of data, which the receiver
// writes by RDMA.
type Credits struct{ ring ring }

// NewCredits makes an empty ring of 128 KiB. Close frees it.
func NewCredits(l Layout, opts ...mr.Option) (*Credits, error) {
	r, err := newRing(l, opts)
	if err != nil {
		return nil, err
	}
	return &Credits{r}, nil
}

// Buffer is the memory to register, for the peer to write.
func (c *Credits) Buffer() *mr.Buffer { return c.ring.buf }

// Peek copies the offers of message k into dst. n is how many there are; 0 says
// that they, or some of them, have not arrived yet, and then dst may hold
// anything. It never waits. An error says what is wrong with what the peer
// wrote, and wraps ErrPeer.
func (c *Credits) Peek(k uint64, dst *[MaxRecvs]CTS) (n int, err error) {
	if !c.ring.open() {
		return 0, ErrClosed
	}
	want := k + 1
	if idx := mmio.LoadAcquire64(c.ring.index(k, 0)); idx != want {
		if idx != 0 && int64(idx-want) > 0 {
			return 0, errAhead(k, idx)
		}
		return 0, nil
	}
	mmio.LoadFence()
	c.ring.load(k, 0, &dst[0])
	group := dst[0].NReqs
	if group == 0 && want == 0 {
		return 0, nil // k wraps, and these are the zeros of an empty row
	}
	if group < 1 || group > MaxRecvs {
		return 0, errGroup(k, group)
	}
	for i := 1; i < int(group); i++ {
		if mmio.LoadAcquire64(c.ring.index(k, i)) != want {
			return 0, nil
		}
		mmio.LoadFence()
		c.ring.load(k, i, &dst[i])
	}
	for i := range dst[:group] {
		if what := dst[i].wrong(want, group); what != "" {
			return 0, errOffer(k, i, what)
		}
	}
	return int(group), nil
}

// Clear takes back the first offer of message k, as NCCL does: the others stay,
// their numbers are old. Call it after Peek and before the last request of the
// message is posted: from then on the peer may use the row again.
func (c *Credits) Clear(k uint64) {
	if c.ring.open() {
		c.ring.store(k, 0, &CTS{})
	}
}

// Close frees the memory once its MRs are closed too. A second Close is nil.
func (c *Credits) Close() error { return c.ring.close() }

// wrong says what an offer of a row of n cannot be, "" if all is well.
func (c *CTS) wrong(idx uint64, n uint32) string {
	switch {
	case c.Idx != idx:
		return "changed while it was read"
	case c.NReqs != n:
		return "disagrees with the first on how many buffers there are"
	case c.Addr == 0:
		return "is at address 0"
	case c.RKeys[0] == 0:
		return "has no remote key"
	case c.Size > MaxSize:
		return "is larger than 2 GiB"
	case c.Size > 0 && c.Addr > -c.Size:
		return "runs over the end of memory"
	}
	return ""
}
