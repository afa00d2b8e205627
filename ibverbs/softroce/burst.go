package softroce

import (
	"sync"

	"github.com/purerdma/purerdma/ibverbs/softroce/internal/link"
	"github.com/purerdma/purerdma/ibverbs/softroce/internal/wire"
)

// burst collects packets of one queue pair, so that runs of equal ones go out in
// one call. Its zero value is empty; what it holds it owes to flush.
type burst struct{ *sendBuffer }

// sendBuffer is the packets of a burst, one behind the other. The last stays in it
// until flush, so that it can still be changed.
type sendBuffer struct {
	n    int // bytes used
	last wire.Packet
	runs []link.Datagrams
	ways [maxRuns]*route // of the runs
	buf  [link.MaxData]byte
}

const maxRuns = 64

var sendBuffers = sync.Pool{New: func() any { return &sendBuffer{runs: make([]link.Datagrams, 0, maxRuns)} }}

// add makes room for a packet to the peer of q and writes its first header. The
// caller writes the others and the payload.
func (b *burst) add(q *qp, op wire.Opcode, f wire.Flags, psn wire.PSN, payload int) wire.Packet {
	return b.addTo(q, &q.route, q.attr.DestQPN, op, f, psn, payload)
}

// addTo is add for a packet that goes to a queue pair elsewhere.
func (b *burst) addTo(q *qp, way *route, qpn uint32, op wire.Opcode, f wire.Flags, psn wire.PSN, payload int) wire.Packet {
	size := wire.Size(op, payload)
	if b.sendBuffer != nil && (b.n+size > len(b.buf) || len(b.runs) == maxRuns) {
		b.flush(q)
	}
	if b.sendBuffer == nil {
		b.sendBuffer = sendBuffers.Get().(*sendBuffer)
	}
	p := wire.Make(b.buf[b.n:], op, payload)
	p.BTH().Put(op, f, defaultPKey, qpn, psn)
	b.extend(way, q.classOf(way, op), size)
	b.n += size
	b.last = p
	return p
}

// extend puts size bytes at the end into the last run, or begins one.
func (b *burst) extend(way *route, tos uint8, size int) {
	if k := len(b.runs); k > 0 && b.ways[k-1] == way && b.runs[k-1].TOS == tos {
		r := &b.runs[k-1]
		whole := len(r.Data)%r.Seg == 0 // none shorter yet
		if whole && size <= r.Seg && r.Len() < link.Segments(r.Seg) {
			r.Data = b.buf[b.n-len(r.Data) : b.n+size]
			return
		}
	}
	b.ways[len(b.runs)] = way
	b.runs = append(b.runs, link.Datagrams{Addr: way.to, SrcPort: way.from, TOS: tos, Seg: size, Data: b.buf[b.n : b.n+size]})
}

// drop takes the last packet out again.
func (b *burst) drop() {
	size := len(b.last.Bytes())
	b.n -= size
	r := &b.runs[len(b.runs)-1]
	r.Data = r.Data[:len(r.Data)-size]
	if len(r.Data) == 0 {
		b.runs = b.runs[:len(b.runs)-1]
	}
}

// askForAck sets the bit in the last packet.
func (b *burst) askForAck() {
	if b.sendBuffer != nil && b.n > 0 {
		b.last.BTH().SetAckReq()
	}
}

// flush sends what was collected. What the link refuses is lost, as on a network.
func (b *burst) flush(q *qp) {
	if b.sendBuffer == nil {
		return
	}
	for i := range b.runs {
		r := &b.runs[i]
		for k := range r.Len() {
			b.ways[i].path.Seal(r.Segment(k), uint16(k))
		}
	}
	q.e.send(b.runs)
	clear(b.ways[:len(b.runs)])
	b.n, b.runs, b.last = 0, b.runs[:0], wire.Packet{}
	sendBuffers.Put(b.sendBuffer)
	b.sendBuffer = nil
}
