package softroce

import (
	"encoding/binary"

	"github.com/purerdma/purerdma/ibverbs/driver"
)

// gather fills dst with the bytes of the list from off on. It reports false if a
// key does not cover what it should, or the memory is gone.
func (q *qp) gather(dst []byte, sgl []driver.SGE, off uint32) bool {
	return q.e.walk(q.pd, sgl, off, len(dst), 0, func(mem []byte, at int) bool { return getBytes(dst[at:at+len(mem)], mem) })
}

// scatterRecv stores src into the memory of the receive that was taken. That of a
// shared queue names memory of the queue's domain.
func (q *qp) scatterRecv(off uint32, src []byte) bool {
	p := q.pd
	if q.srq != nil {
		p = q.srq.pd
	}
	return q.e.scatter(p, q.resp.recv.sgl, off, src)
}

// scatter stores src into the memory of the list from off on.
func (q *qp) scatter(sgl []driver.SGE, off uint32, src []byte) bool {
	return q.e.scatter(q.pd, sgl, off, src)
}

func (e *engine) scatter(p *pd, sgl []driver.SGE, off uint32, src []byte) bool {
	return e.walk(p, sgl, off, len(src), driver.LocalWrite, func(mem []byte, at int) bool { return putBytes(mem, src[at:at+len(mem)]) })
}

// scatterWord stores the result of an atomic operation, as a number of this
// processor.
func (q *qp) scatterWord(sgl []driver.SGE, v uint64) bool {
	var b [8]byte
	binary.NativeEndian.PutUint64(b[:], v)
	return q.scatter(sgl, 0, b[:])
}

// walk calls do with each piece of memory that the n bytes from off on of the list
// lie in, and where in the n bytes it belongs. The keys are those of domain p.
func (e *engine) walk(p *pd, sgl []driver.SGE, off uint32, n int, need driver.Access, do func(mem []byte, at int) bool) bool {
	for at := 0; at < n; {
		if len(sgl) == 0 {
			return false
		}
		s := &sgl[0]
		if off >= s.Length {
			off -= s.Length
			sgl = sgl[1:]
			continue
		}
		k := min(int(s.Length-off), n-at)
		m, mem := e.memory(p, s.LKey, s.Addr+uint64(off), uint64(k), need)
		if m == nil {
			return false
		}
		ok := do(mem, at)
		m.end()
		if !ok {
			return false
		}
		at += k
		off = 0
		sgl = sgl[1:]
	}
	return true
}
