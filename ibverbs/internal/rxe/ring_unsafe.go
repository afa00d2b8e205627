package rxe

import (
	"unsafe"

	"github.com/purerdma/purerdma/ibverbs/driver"
	"github.com/purerdma/purerdma/ibverbs/internal/uapi"
	"github.com/purerdma/purerdma/ibverbs/internal/uverbs"
	"github.com/purerdma/purerdma/internal/offheap"
)

const headSize = int(unsafe.Sizeof(uapi.RxeQueueBuf{}))

// Sizes of the elements, without gather entries and inline data.
const (
	sendWQESize = int(unsafe.Sizeof(uapi.RxeSendWQE{}))
	recvWQESize = int(unsafe.Sizeof(uapi.RxeRecvWQE{}))
	cqeSize     = int(unsafe.Sizeof(uapi.WC{}))
	sgeSize     = int(unsafe.Sizeof(uapi.RxeSGE{}))
)

// view is a ring as structures: where it is, and the shape that its head told
// when it was mapped. The kernel never changes the shape, and what is written
// into the head later does not matter.
type view struct {
	head  *uapi.RxeQueueBuf
	elems unsafe.Pointer
	mask  uint32
	shift uint32
}

// viewOf checks what a view relies on. The memory is off-heap and mapped until
// the ring is released, so raw pointers into it are safe.
func viewOf(mem offheap.Span, elem int) (view, error) {
	if mem.Len() < headSize {
		return view{}, &uverbs.ResponseError{What: "ring size", Value: uint64(mem.Len())}
	}
	head := (*uapi.RxeQueueBuf)(mem.Pointer())
	if err := check(head, mem.Len(), elem); err != nil {
		return view{}, err
	}
	return view{head, unsafe.Add(mem.Pointer(), headSize), head.IndexMask, head.Log2ElemSize}, nil
}

// at is element i. The mask is the bounds check.
func (v *view) at(i uint32) unsafe.Pointer {
	return unsafe.Add(v.elems, uintptr(i&v.mask)<<(v.shift&31))
}

// sendWQE is element i of a send queue.
func (v *view) sendWQE(i uint32) *uapi.RxeSendWQE { return (*uapi.RxeSendWQE)(v.at(i)) }

// recvWQE is element i of a receive queue.
func (v *view) recvWQE(i uint32) *uapi.RxeRecvWQE { return (*uapi.RxeRecvWQE)(v.at(i)) }

// cqe is element i of a CQ.
func (v *view) cqe(i uint32) *uapi.WC { return (*uapi.WC)(v.at(i)) }

// sendSGL is the n gather entries after w, which the caller has held against
// the queue's limit. driver.SGE has the layout of struct rxe_sge.
func sendSGL(w *uapi.RxeSendWQE, n int) []driver.SGE {
	return unsafe.Slice((*driver.SGE)(unsafe.Add(unsafe.Pointer(w), sendWQESize)), n)
}

// recvSGL is the same for a receive.
func recvSGL(w *uapi.RxeRecvWQE, n int) []driver.SGE {
	return unsafe.Slice((*driver.SGE)(unsafe.Add(unsafe.Pointer(w), recvWQESize)), n)
}

// inlineData is the n bytes after w, which the caller has held against the
// queue's limit.
func inlineData(w *uapi.RxeSendWQE, n int) []byte {
	return unsafe.Slice((*byte)(unsafe.Add(unsafe.Pointer(w), sendWQESize)), n)
}

// rdma and atomic are the two members of the union in a send request.
func rdma(w *uapi.RxeSendWQE) *uapi.RxeWRRDMA { return (*uapi.RxeWRRDMA)(unsafe.Pointer(&w.WR.WR)) }

func atomicOp(w *uapi.RxeSendWQE) *uapi.RxeWRAtomic {
	return (*uapi.RxeWRAtomic)(unsafe.Pointer(&w.WR.WR))
}
