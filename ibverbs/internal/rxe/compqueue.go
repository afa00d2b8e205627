package rxe

import (
	"encoding/binary"

	"github.com/purerdma/purerdma/ibverbs/driver"
	"github.com/purerdma/purerdma/ibverbs/internal/uapi"
)

// The kernel's flags of a completion (enum ib_wc_flags). The second differs from
// the verbs'.
const (
	wcWithImm        = 1 << 1
	wcWithInvalidate = 1 << 2
)

// compQueue is the ring of a CQ.
type compQueue struct {
	ring
	cons uint32 // the next element to read
}

// more adds what a peer sent beside the data. The kernel sets the flag for
// immediate data also where it was sent: that does not come here. And it says of
// every receive that a global route header is in the buffer, which is so for
// datagrams, that is, where the sender has a number.
func more(wc *driver.WC, e *uapi.WC) {
	switch {
	case e.WCFlags&wcWithInvalidate != 0:
		wc.Flags, wc.Imm = driver.WCWithInv, binary.NativeEndian.Uint32(e.Ex[:])
	case e.WCFlags&wcWithImm != 0:
		wc.Flags, wc.Imm = driver.WCWithImm, binary.BigEndian.Uint32(e.Ex[:])
	}
	if e.SrcQP != 0 {
		wc.Flags |= driver.WCGRH
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
