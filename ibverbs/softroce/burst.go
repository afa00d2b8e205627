package softroce

import (
	"sync"

	"github.com/purerdma/purerdma/ibverbs/softroce/internal/link"
	"github.com/purerdma/purerdma/ibverbs/softroce/internal/wire"
)

// burst collects packets, so that runs of equal ones to one peer go out in one
// call, also of several queue pairs. Its zero value is empty; what it holds it owes
// to flush.
type burst struct{ *sendBuffer }

// sendBuffer is the packets of a burst, one behind the other. The last is sealed
// late, so that it can still be changed.
type sendBuffer struct {
	n     int // bytes used
	last  wire.Packet
	path  wire.Path // of the last packet
	open  bool      // the last packet is not sealed
	held  int       // packets in the last run
	ended bool      // no packet may join it
	runs  []link.Datagrams
	buf   [link.MaxData]byte
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
	b.prepare(q.e, size)
	p := wire.Make(b.buf[b.n:], op, payload)
	p.BTH().Put(op, f, defaultPKey, qpn, psn)
	tos := q.classOf(way, op)
	if r := b.run(way, tos, size); r != nil {
		r.Data = b.buf[b.n-len(r.Data) : b.n+size]
		b.held++
	} else {
		b.begin(way, tos, size, 1)
	}
	b.n += size
	b.last, b.path, b.open = p, way.path, true
	return p
}

// prepare seals what is there and makes sure that there is room for size bytes.
func (b *burst) prepare(e *engine, size int) {
	if b.sendBuffer != nil {
		b.seal()
		if b.n+size > len(b.buf) || len(b.runs) == maxRuns {
			b.flush(e)
		}
	}
	if b.sendBuffer == nil {
		if b.sendBuffer = e.spare.Swap(nil); b.sendBuffer == nil {
			b.sendBuffer = sendBuffers.Get().(*sendBuffer)
		}
	}
}

// run is the last run if a packet of size bytes can join it. Only its last packet
// may be shorter than the others.
func (b *burst) run(way *route, tos uint8, size int) *link.Datagrams {
	if len(b.runs) == 0 {
		return nil
	}
	r := &b.runs[len(b.runs)-1]
	if b.ended || size > r.Seg || len(r.Data) != b.held*r.Seg || b.held == link.Segments(r.Seg) ||
		r.Addr != way.to || r.SrcPort != way.from || r.TOS != tos {
		return nil
	}
	return r
}

// begin begins a run with n packets.
func (b *burst) begin(way *route, tos uint8, size, n int) {
	b.runs = append(b.runs, link.Datagrams{Addr: way.to, SrcPort: way.from, TOS: tos, Seg: size, Data: b.buf[b.n : b.n+n*size]})
	b.held, b.ended = n, false
}

// endRun has the next packet begin a run of its own.
func (b *burst) endRun() { b.ended = true }

// room is how many packets of size bytes can go out with what is there.
func (b *burst) room(q *qp, op wire.Opcode, size int) int {
	b.prepare(q.e, size)
	n := (len(b.buf) - b.n) / size
	if r := b.run(&q.route, q.classOf(&q.route, op), size); r != nil && r.Seg == size {
		return min(n, link.Segments(size)-b.held)
	}
	return min(n, link.Segments(size))
}

// extend makes room for n packets of size bytes, no more than room has said, which
// the caller writes and seals. id is the Identification of the first, each next one
// having one more.
func (b *burst) extend(q *qp, op wire.Opcode, size, n int) (pkts []byte, id uint16) {
	pkts = b.buf[b.n : b.n+n*size]
	tos := q.classOf(&q.route, op)
	if r := b.run(&q.route, tos, size); r != nil && r.Seg == size {
		id = uint16(b.held)
		r.Data = b.buf[b.n-len(r.Data) : b.n+n*size]
		b.held += n
	} else {
		b.begin(&q.route, tos, size, n)
	}
	b.n += n * size
	b.last, b.open = wire.Packet{}, false
	return pkts, id
}

// finish is called when the packets of extend are written.
func (b *burst) finish(q *qp, size int) {
	b.last, _ = wire.Parse(b.buf[b.n-size : b.n])
	b.path = q.path
}

// shrink takes the last n packets of size bytes out again.
func (b *burst) shrink(size, n int) {
	b.n -= n * size
	b.last, b.open = wire.Packet{}, false
	r := &b.runs[len(b.runs)-1]
	r.Data = r.Data[:len(r.Data)-n*size]
	if b.held -= n; b.held == 0 {
		b.runs = b.runs[:len(b.runs)-1]
		if k := len(b.runs); k > 0 {
			b.held = b.runs[k-1].Len()
		}
	}
}

// drop takes the last packet out again.
func (b *burst) drop() { b.shrink(len(b.last.Bytes()), 1) }

// askForAck sets the bit in the last packet.
func (b *burst) askForAck() {
	if b.sendBuffer != nil && len(b.last.Bytes()) > 0 {
		b.last.BTH().SetAckReq()
		b.open = true
	}
}

func (b *burst) seal() {
	if b.open {
		b.path.Seal(b.last.Bytes(), uint16(b.held-1))
		b.open = false
	}
}

// flush sends what was collected. What the link refuses is lost, as on a network.
func (b *burst) flush(e *engine) {
	if b.sendBuffer == nil {
		return
	}
	b.seal()
	e.send(b.runs)
	b.n, b.runs, b.last, b.held, b.ended = 0, b.runs[:0], wire.Packet{}, 0, false
	if !e.spare.CompareAndSwap(nil, b.sendBuffer) {
		sendBuffers.Put(b.sendBuffer)
	}
	b.sendBuffer = nil
}
