package mlx5model

import (
	"encoding/binary"
	"fmt"
	"strings"

	"github.com/purerdma/purerdma/ibverbs/driver"
	"github.com/purerdma/purerdma/internal/mlx5prm"
)

// traced tells of an entry that is executed next. Of an address it tells the place in a
// page.
func (e *entry) traced(q *qp, record uint16) {
	m := q.c.m
	if m.config.Trace == nil {
		return
	}
	b := bytesOf(&e.Ctrl)
	imm := fmt.Sprintf("%x", b[12:16])
	if op := e.Opcode(); op == mlx5prm.OpUMR || op == mlx5prm.OpSendInval {
		imm = m.keyed(e.Imm.Get())
	}
	line := fmt.Sprintf("entry of %v: opcode %x of a queue pair, ds %x, flags %x %s, record %d", q.kind, b[:4], b[7], b[8:12], imm, record)
	switch op := e.Opcode(); {
	case op == mlx5prm.OpUMR:
		line += e.umr.traced(q)
	case q.kind == driver.UD && sendOp(op):
		line += e.address(m)
	case remoteOp(op):
		line += fmt.Sprintf(", remote %#x %s", e.remote.RAddr.Get()%pageSize, m.keyed(e.remote.RKey.Get()))
		if atomicOp(op) {
			line += fmt.Sprintf(", atomic %#x %#x", e.atomic.SwapAdd.Get(), e.atomic.Compare.Get())
		}
	}
	m.tracef("%s%s", line, m.listed(e.data))
}

// traced tells of a receive that is completed next.
func (r *receive) traced(q *qp) {
	m := q.c.m
	if m.config.Trace == nil {
		return
	}
	of, record := q.c.nameOfObject(q), q.db
	if q.srq != nil {
		of, record = q.c.nameOfObject(q.srq), q.srq.db
		b := make([]byte, mlx5prm.DSUnit)
		if q.c.mem.read(q.srq.entry(r.index), b) == nil {
			of += fmt.Sprintf(", head %x,", b)
		}
	}
	posted, _ := counter(q.c.mem, record)
	line := fmt.Sprintf("receive of %s: index %d, record %d%s", of, r.index, posted, m.listed(r.data))
	if r.ended {
		line += ", ended"
	}
	m.tracef("%s", line)
}

// keyed is what a trace says of a key: that it is one, and the bits that are the program's
// if it is a window's.
func (m *Model) keyed(k uint32) string {
	switch {
	case m.mrs[k] != nil:
		return "a key"
	case m.mws[index(k)] != nil:
		return fmt.Sprintf("a window %#x", k&0xff)
	}
	return fmt.Sprintf("key %#x", k)
}

// listed is what a trace says of the parts of a message.
func (m *Model) listed(data []piece) string {
	var b strings.Builder
	for _, p := range data {
		if p.inline != nil {
			fmt.Fprintf(&b, ", inline %x", p.inline)
		} else {
			fmt.Fprintf(&b, ", %d bytes at %#x %s", p.n, p.addr%pageSize, m.keyed(p.key))
		}
	}
	return b.String()
}

// address is what a trace says of where a datagram goes.
func (e *entry) address(m *Model) string {
	to := "no such number"
	if m.qps[e.av.DQPDCT.Get()&0xffffff] != nil {
		to = "a number"
	}
	b := bytesOf(&e.av)
	return fmt.Sprintf(", to %x %s %x, %x", b[:8], to, b[8]&^0x7f, b[12:])
}

// traced is what a trace says of a change of a key.
func (u *umr) traced(q *qp) string {
	word := u.QPNMkey.Get()
	of := "no queue pair"
	switch word >> 8 {
	case q.num:
		of = "this queue pair"
	case anyQP:
		of = "any queue pair"
	}
	key := u.MkeyContext
	key.QPNMkey, key.StartAddr = mlx5prm.BE32{}, mlx5prm.BE64{}
	line := fmt.Sprintf(", change %x, key of %s %#x at %#x %x", bytesOf(&u.UMRCtrl), of, word&0xff, u.StartAddr.Get()%pageSize, bytesOf(&key))
	if !u.frees() {
		line += fmt.Sprintf(", list of %d bytes at %#x %s", u.list.ByteCount.Get(), u.list.Address.Get()%pageSize, q.c.m.keyed(u.list.Mkey.Get()))
	}
	return line
}

// records is what the doorbell records of a queue pair say, and the index of its CQ.
func (q *qp) records() string {
	var b [mlx5prm.RecordSize]byte
	if q.c.mem.read(q.db, b[:]) != nil {
		return "no record"
	}
	return fmt.Sprintf("records %x %x, %s", b[:4], b[4:], q.send.index())
}

// index is how many completions the program says that it has taken.
func (q *cq) index() string {
	var b [4]byte
	if q.c.mem.read(q.db, b[:]) != nil {
		return "no index"
	}
	return fmt.Sprintf("%d taken", binary.BigEndian.Uint32(b[:]))
}
