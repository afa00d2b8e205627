package rxe

import (
	"github.com/purerdma/purerdma/ibverbs/internal/uapi"
	"github.com/purerdma/purerdma/ibverbs/internal/uverbs"
	"github.com/purerdma/purerdma/internal/mmio"
	"github.com/purerdma/purerdma/internal/offheap"
)

// ring is a queue in memory shared with the kernel. Indices run from 0 to mask
// and wrap; one element stays free, so that full and empty differ. Each index
// has one writer, which keeps its own copy and stores it for the other end.
type ring struct {
	view
	mem offheap.Span
}

// newRing lays a ring over mem, which it owns from then on, also when it fails.
// The elements must have room for elem bytes.
func newRing(mem offheap.Span, elem int) (ring, error) {
	v, err := viewOf(mem, elem)
	if err != nil {
		_ = mem.Release()
		return ring{}, err
	}
	return ring{v, mem}, nil
}

// release unmaps the ring. The kernel frees its end only afterwards.
func (r *ring) release() error { return r.mem.Release() }

// check says whether a ring with this head fits into size bytes and has
// elements of elem bytes or more.
func check(head *uapi.RxeQueueBuf, size, elem int) error {
	log2, slots := head.Log2ElemSize, uint64(head.IndexMask)+1
	switch {
	case log2 > 16 || 1<<log2 < elem:
		return &uverbs.ResponseError{What: "ring element size 1 <<", Value: uint64(log2)}
	case slots&(slots-1) != 0 || slots<<log2 > uint64(size-headSize):
		return &uverbs.ResponseError{What: "ring index mask", Value: uint64(head.IndexMask)}
	}
	return nil
}

// usable is how many elements can be in the ring at once.
func (r *ring) usable() int { return int(r.mask) }

// used is how many elements lie between two indices.
func (r *ring) used(prod, cons uint32) int { return int((prod - cons) & r.mask) }

func (r *ring) next(i uint32) uint32 { return (i + 1) & r.mask }

// produced is how far the kernel has filled a CQ.
func (r *ring) produced() uint32 { return mmio.LoadAcquire32(&r.head.ProducerIndex) }

// consumed is how far the kernel has emptied a work queue.
func (r *ring) consumed() uint32 { return mmio.LoadAcquire32(&r.head.ConsumerIndex) }

// produce hands the elements before prod to the kernel.
func (r *ring) produce(prod uint32) { mmio.StoreRelease32(&r.head.ProducerIndex, prod) }

// consume gives the elements before cons back to the kernel.
func (r *ring) consume(cons uint32) { mmio.StoreRelease32(&r.head.ConsumerIndex, cons) }
