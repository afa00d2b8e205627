package rxe

import (
	"encoding/binary"
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

// rdma, atomicOp, datagram and bind are the members of the union in a send
// request.
func rdma(w *uapi.RxeSendWQE) *uapi.RxeWRRDMA { return (*uapi.RxeWRRDMA)(unsafe.Pointer(&w.WR.WR)) }

func atomicOp(w *uapi.RxeSendWQE) *uapi.RxeWRAtomic {
	return (*uapi.RxeWRAtomic)(unsafe.Pointer(&w.WR.WR))
}

func datagram(w *uapi.RxeSendWQE) *uapi.RxeWRUD { return (*uapi.RxeWRUD)(unsafe.Pointer(&w.WR.WR)) }

func bind(w *uapi.RxeSendWQE) *uapi.RxeWRMW { return (*uapi.RxeWRMW)(unsafe.Pointer(&w.WR.WR)) }

// following is the element after wc in its array; the caller has seen that there
// is one. It is an index that the compiler keeps in one register.
func following(wc *driver.WC) *driver.WC {
	return (*driver.WC)(unsafe.Add(unsafe.Pointer(wc), unsafe.Sizeof(*wc)))
}

// move copies a completion without Imm and Flags, which become 0. Polling is
// mostly these moves, so neighbours that both sides have go together, and so do
// the four single bytes. The layout test holds what that relies on.
func move(wc *driver.WC, e *uapi.WC) {
	wc.ID = e.WRID
	*(*[4]uint32)(unsafe.Pointer(&wc.VendorErr)) = *(*[4]uint32)(unsafe.Pointer(&e.VendorErr)) // ByteLen, Imm, QPN
	wc.Imm = 0
	wc.SrcQP = e.SrcQP
	binary.LittleEndian.PutUint32((*[4]byte)(unsafe.Pointer(&wc.Status))[:], e.Status&0xff|e.Opcode&0xff<<8|uint32(e.SL)<<24)
	*(*[2]uint16)(unsafe.Pointer(&wc.PKeyIndex)) = *(*[2]uint16)(unsafe.Pointer(&e.PKeyIndex)) // and SLID
	wc.PathBits = e.DLIDPathBits
}
