//go:build hw && linux

package interop

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"testing"

	"github.com/purerdma/purerdma/ibverbs"
	"github.com/purerdma/purerdma/internal/hwtest"
	"github.com/purerdma/purerdma/lab"
)

// TestWithKernel runs the table and what does not fit into it.
func TestWithKernel(t *testing.T) {
	host := lab.NewHost(t, netMTU)
	for _, part := range []struct {
		name string
		run  func(*fixture, *testing.T)
	}{
		{"RC", func(f *fixture, t *testing.T) { f.eachRow(t, table(ibverbs.RC, rcOps), f.reliable) }},
		{"UC", func(f *fixture, t *testing.T) { f.eachRow(t, table(ibverbs.UC, ucOps), f.unreliable) }},
		{"UD", func(f *fixture, t *testing.T) { f.eachRow(t, table(ibverbs.UD, udOps), f.unreliable) }},
		{"SRQ", (*fixture).sharedReceives},
		{"windows", (*fixture).windows},
		{"refusals", (*fixture).refusals},
		{"pingpong", (*fixture).pingpongs},
	} {
		t.Run(part.name, func(t *testing.T) {
			if part.name == "UC" || part.name == "UD" {
				enlarge(t)
			}
			part.run(open(t, host), t)
		})
	}
}

// eachRow plays the chosen rows, first those without loss.
func (f *fixture) eachRow(t *testing.T, rows []row, play func(*testing.T, row)) {
	all := len(rows)
	rows = chosen(hwtest.Rand(t), rows)
	t.Logf("%d of %d rows", len(rows), all)
	for _, loss := range []bool{false, true} {
		t.Run(fmt.Sprintf("loss %v", loss), func(t *testing.T) {
			if loss {
				f.disturb(t)
			}
			for _, r := range rows {
				if r.loss == loss {
					t.Run(r.String(), func(t *testing.T) {
						f.explain(t, r)
						play(t, r)
					})
				}
			}
		})
	}
}

// gap is the bytes between two messages in memory, which nothing writes.
const (
	gap    = 64
	poison = 0xee
)

// messages is how many messages a row has: some in flight at once, and where
// packets get lost enough for that.
func (r row) messages() int {
	n := 3
	if r.loss {
		n = depth
	}
	return max(1, min(n, memory/(r.size()+gap)))
}

// packets is how many packets a message has.
func (r row) packets() int { return max(1, (r.size()+r.mtu.Bytes()-1)/r.mtu.Bytes()) }

// slot is where message i lies, at both ends.
func (r row) slot(i int) int { return i * (r.size() + gap) }

// reliable plays a row of RC: all that is asked for is done, in order, once, and
// the bytes are right.
func (f *fixture) reliable(t *testing.T, r row) {
	n := r.messages()
	c := f.connect(t, hwtest.Rand(t), r, n*r.packets())
	x := newTransfer(c, n)
	x.receive()
	x.bindWindows()
	x.send()
	x.awaitRequests()
	x.awaitReceives()
	x.check()
	c.from.idle(t)
	c.to.idle(t)
}

// transfer is the messages of a row.
type transfer struct {
	*connection
	n        int
	src, dst []byte   // memory that is read and written
	imm      []uint32 // immediate data, or the key to invalidate
	// Of atomic operations: the word at the responder, and what it holds before
	// each of them and in the end.
	values []uint64
}

func newTransfer(c *connection, n int) *transfer {
	x := &transfer{connection: c, n: n, src: c.from.buf.Bytes(), dst: c.to.buf.Bytes()}
	if c.op == ibverbs.OpRead || isAtomic(c.op) {
		x.src, x.dst = x.dst, x.src
	}
	used := c.slot(n)
	for i := 0; i < used; i += 8 {
		var word [8]byte
		binary.NativeEndian.PutUint64(word[:], c.g.Uint64())
		copy(x.src[i:used], word[:])
	}
	for i := range x.dst[:used] {
		x.dst[i] = poison
	}
	for range n {
		x.imm = append(x.imm, c.g.Uint32())
	}
	return x
}

// word is where atomic operations meet.
const word = memory - 8

func (x *transfer) takesReceive() bool {
	switch x.op {
	case ibverbs.OpSend, ibverbs.OpSendWithImm, ibverbs.OpSendWithInv, ibverbs.OpWriteWithImm:
		return true
	}
	return false
}

func (x *transfer) receive() {
	x.t.Helper()
	if !x.takesReceive() {
		return
	}
	for i := range x.n {
		_, err := x.peer.PostRecv(ibverbs.RecvWR{ID: uint64(i), SGL: []ibverbs.SGE{x.to.mem.SGE(x.slot(i), x.size())}})
		must(x.t, err)
	}
}

func (x *transfer) send() {
	x.t.Helper()
	x.values = append(x.values, x.g.Uint64())
	binary.NativeEndian.PutUint64(x.to.buf.Bytes()[word:], x.values[0])
	wrs := make([]ibverbs.SendWR, x.n)
	for i := range wrs {
		wrs[i] = x.request(i)
	}
	_, err := x.qp.PostSend(wrs...)
	must(x.t, err)
}

func (x *transfer) request(i int) ibverbs.SendWR {
	wr := ibverbs.SendWR{ID: uint64(i), Op: x.op, Flags: ibverbs.Signaled, SGL: []ibverbs.SGE{x.from.mem.SGE(x.slot(i), x.size())}}
	switch x.op {
	case ibverbs.OpSendWithImm, ibverbs.OpWriteWithImm, ibverbs.OpSendWithInv:
		wr.Imm = x.imm[i]
	}
	x.address(&wr)
	now := x.values[len(x.values)-1]
	switch x.op {
	case ibverbs.OpWrite, ibverbs.OpWriteWithImm, ibverbs.OpRead:
		wr.Remote = x.to.mem.Remote(x.slot(i))
	case ibverbs.OpFetchAdd:
		wr.Remote, wr.CompareAdd = x.to.mem.Remote(word), x.g.Uint64()
		x.values = append(x.values, now+wr.CompareAdd)
	case ibverbs.OpCmpSwap:
		wr.Remote, wr.CompareAdd, wr.Swap = x.to.mem.Remote(word), now, x.g.Uint64()
		if i%2 == 1 {
			wr.CompareAdd++ // in vain
			x.values = append(x.values, now)
		} else {
			x.values = append(x.values, wr.Swap)
		}
	}
	return wr
}

// address says where a datagram goes.
func (c *connection) address(wr *ibverbs.SendWR) {
	if c.transport == ibverbs.UD {
		wr.UD = c.ah.To(c.peer.Num(), qkey)
	}
}

func (x *transfer) awaitRequests() {
	x.t.Helper()
	want := map[ibverbs.Opcode]ibverbs.WCOpcode{
		ibverbs.OpSend: ibverbs.WCSend, ibverbs.OpSendWithImm: ibverbs.WCSend, ibverbs.OpSendWithInv: ibverbs.WCSend,
		ibverbs.OpWrite: ibverbs.WCWrite, ibverbs.OpWriteWithImm: ibverbs.WCWrite, ibverbs.OpRead: ibverbs.WCRead,
		ibverbs.OpFetchAdd: ibverbs.WCFetchAdd, ibverbs.OpCmpSwap: ibverbs.WCCmpSwap,
	}[x.op]
	for i, wc := range x.from.take(x.t, x.n) {
		if wc.ID != uint64(i) || wc.Op != want || wc.QPN != x.qp.Num() {
			x.t.Errorf("completion %d of the requester is %+v", i, wc)
		}
	}
}

func (x *transfer) awaitReceives() {
	x.t.Helper()
	if !x.takesReceive() {
		return
	}
	for i, wc := range x.to.take(x.t, x.n) {
		want := ibverbs.WC{ID: uint64(i), Op: ibverbs.WCRecv, ByteLen: uint32(x.size()), QPN: x.peer.Num()}
		switch x.op {
		case ibverbs.OpWriteWithImm:
			want.Op = ibverbs.WCRecvWriteWithImm
			fallthrough
		case ibverbs.OpSendWithImm:
			want.Flags, want.Imm = ibverbs.WCWithImm, x.imm[i]
		case ibverbs.OpSendWithInv:
			want.Flags, want.Imm = ibverbs.WCWithInv, x.imm[i]
		}
		got := wc
		got.VendorErr, got.SrcQP, got.PKeyIndex, got.SLID, got.SL, got.PathBits = 0, 0, 0, 0, 0, 0
		if got != want {
			x.t.Errorf("completion %d of the receiver is %+v, want %+v", i, wc, want)
		}
	}
}

// check looks at the memory.
func (x *transfer) check() {
	x.t.Helper()
	if isAtomic(x.op) {
		for i := range x.n {
			if got := binary.NativeEndian.Uint64(x.dst[x.slot(i):]); got != x.values[i] {
				x.t.Errorf("atomic operation %d gave %#x, want %#x", i, got, x.values[i])
			}
		}
		if got := binary.NativeEndian.Uint64(x.src[word:]); got != x.values[x.n] {
			x.t.Errorf("in the end there is %#x, want %#x", got, x.values[x.n])
		}
	}
	for i := range x.n {
		at, size := x.slot(i), x.size()
		if !isAtomic(x.op) && !bytes.Equal(x.dst[at:at+size], x.src[at:at+size]) {
			x.t.Errorf("message %d has wrong bytes from %d on", i, firstDifference(x.dst[at:at+size], x.src[at:at+size]))
		}
		if beyond := x.dst[at+size : at+size+gap]; !bytes.Equal(beyond, bytes.Repeat([]byte{poison}, gap)) {
			x.t.Errorf("something was written behind message %d", i)
		}
	}
}

func firstDifference(a, b []byte) int {
	for i := range a {
		if a[i] != b[i] {
			return i
		}
	}
	return len(a)
}
