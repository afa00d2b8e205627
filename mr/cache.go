package mr

import (
	"fmt"

	"github.com/purerdma/purerdma/ibverbs"
)

// Cache registers each range of memory once for a PD and counts its users, as
// NCCL's registration cache does. A [Region] that lies within a range which is
// registered with the same rights shares that registration; the last Close of
// its users ends it. Nothing stays registered without a user. It may be used
// from any goroutine: ranges are registered side by side, and those who ask for
// one that is just being registered wait for it.
type Cache struct {
	index *index[*ibverbs.MR]
}

// NewCache makes an empty cache for pd.
func NewCache(pd *ibverbs.PD) *Cache { return &Cache{newIndex(pd.RegMR)} }

// Region is a user's share of a registration. Close it when the memory is no
// longer used; it may be used from any goroutine.
type Region struct {
	share *share[*ibverbs.MR]
	mr    *ibverbs.MR
	off   int // of its first byte within mr
	n     int
}

// Get registers m with the rights a, or finds a registration with these rights
// of which it is a part. Errors are those of PD.RegMR.
func (c *Cache) Get(m ibverbs.Memory, a ibverbs.Access) (*Region, error) {
	s, err := c.index.get(m, a)
	if err != nil {
		return nil, err
	}
	return &Region{share: s, mr: s.entry.reg, off: s.off, n: s.n}, nil
}

// Len is how many registrations there are.
func (c *Cache) Len() int { return c.index.len() }

// MR is the registration that the region lies in; Offset is where, in bytes.
// The MR belongs to the cache.
func (r *Region) MR() *ibverbs.MR { return r.mr }

// Offset is the first byte of the region within MR.
func (r *Region) Offset() int { return r.off }

// LKey is the key for our own requests.
func (r *Region) LKey() uint32 { return r.mr.LKey() }

// RKey is the key for the peer's requests.
func (r *Region) RKey() uint32 { return r.mr.RKey() }

// Addr is the IO virtual address of the first byte.
func (r *Region) Addr() uint64 { return r.mr.Addr() + uint64(r.off) }

// Len is the size in bytes.
func (r *Region) Len() int { return r.n }

// SGE is the n bytes from off on. A range outside the region panics, as a slice
// expression does: check offsets that come from a peer before.
func (r *Region) SGE(off, n int) ibverbs.SGE {
	if off < 0 || n < 0 || off > r.n || n > r.n-off {
		panic(fmt.Sprintf("mr: bytes %d to %d+%d are outside a region of %d bytes", off, off, n, r.n))
	}
	return r.mr.SGE(r.off+off, n)
}

// Remote is what the peer needs to reach the memory from byte off on.
func (r *Region) Remote(off int) ibverbs.Remote {
	if off < 0 || off > r.n {
		panic(fmt.Sprintf("mr: byte %d is outside a region of %d bytes", off, r.n))
	}
	return r.mr.Remote(r.off + off)
}

// Close gives the share back; the last ends the registration. A second Close is
// nil. Where the registration cannot be ended the error says why, and another
// Close tries again.
func (r *Region) Close() error { return r.share.close() }
