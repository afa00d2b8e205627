package mlx5model

import (
	"encoding/binary"

	"github.com/purerdma/purerdma/internal/mlx5prm"
)

// receive is an entry of a receive queue.
type receive struct {
	index  uint16
	data   []piece
	length uint64
	ended  bool // its list ends before it does
}

// nextReceive reads the next entry, nil if the program has posted none.
func (q *qp) nextReceive() *receive {
	if q.srq != nil {
		return q.srq.nextReceive()
	}
	posted, ok := counter(q.c.mem, q.db)
	if !ok || q.rqN == 0 || posted == q.rqCI {
		return nil
	}
	r := &receive{index: q.rqCI}
	b := make([]byte, 1<<q.rqShift)
	if q.c.mem.read(q.rq+uint64(uint32(r.index)&(q.rqN-1))<<q.rqShift, b) == nil {
		r.list(b)
	}
	return r
}

// list takes the scatter list of an entry apart.
func (r *receive) list(b []byte) {
	for ; len(b) >= mlx5prm.DSUnit; b = b[mlx5prm.DSUnit:] {
		d := structOf[mlx5prm.Data](b)
		if d.LKey.Get() == mlx5prm.InvalidLKey {
			r.ended = true
			return
		}
		p := pieceOf(&d)
		r.data = append(r.data, p)
		r.length += p.n
	}
}

// took removes the entry that nextReceive gave.
func (q *qp) took() {
	if q.srq != nil {
		q.srq.took()
		return
	}
	q.rqCI++
}

// counter is a queue's counter in its doorbell record.
func counter(mem memory, at uint64) (uint16, bool) {
	var b [4]byte
	if mem.read(at, b[:]) != nil {
		return 0, false
	}
	return uint16(binary.BigEndian.Uint32(b[:])), true
}

func (q *srq) nextReceive() *receive {
	posted, ok := counter(q.c.mem, q.db)
	if !ok || posted == q.taken {
		return nil
	}
	r := &receive{index: q.next}
	b := make([]byte, 1<<q.shift)
	if q.c.mem.read(q.entry(q.next), b) == nil {
		r.list(b[mlx5prm.DSUnit:])
	}
	return r
}

func (q *srq) entry(i uint16) uint64 { return q.buf + uint64(uint32(i)&(q.n-1))<<q.shift }

// took follows the list, and says when it has become shorter than the program wanted
// to be told of.
func (q *srq) took() {
	b := make([]byte, mlx5prm.DSUnit)
	if q.c.mem.read(q.entry(q.next), b) != nil {
		return
	}
	next := structOf[mlx5prm.SRQNext](b)
	q.next = next.NextWQEIndex.Get()
	q.taken++
	if posted, ok := counter(q.c.mem, q.db); ok && q.limit != 0 && uint32(posted-q.taken) < q.limit {
		q.limit = 0
		q.c.event(q.async, eventSRQLimit, q.user)
	}
}
