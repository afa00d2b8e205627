package rxe

import (
	"encoding/binary"

	"github.com/purerdma/purerdma/ibverbs/driver"
	"github.com/purerdma/purerdma/ibverbs/internal/uapi"
)

// The kernel's flags of a completion (enum ib_wc_flags), where they differ from
// those of the verbs.
const wcWithInvalidate = 1 << 2

// compQueue is the ring of a CQ.
type compQueue struct {
	ring
	cons uint32 // the next element to read
}

// poll moves completions to wcs. failed says that one of them did not succeed.
func (q *compQueue) poll(wcs []driver.WC) (n int, failed bool) {
	prod, cons := q.produced(), q.cons
	if cons == prod {
		return 0, false
	}
	var status uint32
	for n < len(wcs) && cons != prod {
		e := q.cqe(cons)
		status |= e.Status
		translate(e, &wcs[n])
		cons = q.next(cons)
		n++
	}
	q.cons = cons
	q.consume(cons)
	return n, status != 0
}

// translate copies a completion. The kernel sets the flag for immediate data also
// where it was sent, and the one for a GRH also where a QP is connected and its
// buffers have none.
func translate(e *uapi.WC, wc *driver.WC) {
	wc.ID = e.WRID
	wc.VendorErr = e.VendorErr
	wc.ByteLen = e.ByteLen
	wc.QPN = e.QPNum
	wc.SrcQP = e.SrcQP
	wc.Status = driver.Status(e.Status)
	wc.Op = driver.WCOpcode(e.Opcode)
	wc.SL = e.SL
	wc.PKeyIndex = e.PKeyIndex
	wc.SLID = e.SLID
	wc.PathBits = e.DLIDPathBits
	wc.Imm = 0
	wc.Flags = 0
	if e.WCFlags&(uint32(driver.WCWithImm)|wcWithInvalidate) != 0 && wc.Op.IsRecv() {
		if e.WCFlags&wcWithInvalidate != 0 {
			wc.Flags, wc.Imm = driver.WCWithInv, binary.NativeEndian.Uint32(e.Ex[:])
		} else {
			wc.Flags, wc.Imm = driver.WCWithImm, binary.BigEndian.Uint32(e.Ex[:])
		}
	}
}

// drop takes the completions of a QP out. The kernel may add others meanwhile:
// what stays moves towards the end that it adds to, and its index is left
// alone.
func (q *compQueue) drop(qpn uint32) {
	prod := q.produced()
	to := prod
	for from := prod; from != q.cons; {
		from = (from - 1) & q.mask
		if e := q.cqe(from); e.QPNum != qpn {
			to = (to - 1) & q.mask
			if to != from {
				*q.cqe(to) = *e
			}
		}
	}
	if to != q.cons {
		q.cons = to
		q.consume(to)
	}
}
