//go:build hw && linux

package interop

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"testing"
	"time"

	"github.com/purerdma/purerdma/ibverbs"
	"github.com/purerdma/purerdma/internal/hwtest"
)

const (
	// markers is how many messages are sent behind those of a row, one after the
	// other, until one arrives: then all has that ever will.
	markers    = 32
	markerSize = 12
	// markerWait is how long one may take.
	markerWait = 200 * time.Millisecond
	// reserve is the end of the memory, where markers are sent from and arrive.
	reserve = 8 << 10
	// grh is the bytes before a datagram.
	grh = 40
)

// unreliable plays a row of UC or UD: what is delivered is whole, right and in
// order, all of it where nothing gets lost, and what is sent later arrives.
func (f *fixture) unreliable(t *testing.T, r row) {
	n := max(1, min(r.messages(), (memory-reserve)/(grh+r.size()+gap)))
	c := f.connect(t, hwtest.Rand(t), r, n*r.packets())
	x := newLossy(c, n)
	x.receive()
	x.send()
	x.awaitRequests()
	for !x.ended && !x.deaf() {
		x.mark()
	}
	if x.op == ibverbs.OpWrite || x.op == ibverbs.OpWriteWithImm {
		x.written()
	}
	lost := n - x.delivered
	if lost > 0 {
		t.Logf("%d of %d messages were lost", lost, n)
	}
	if lost > 0 && !r.loss {
		t.Error("nothing is to be lost here")
	}
	c.from.idle(t)
}

// lossy is the messages of a row, some of which may not arrive.
type lossy struct {
	*transfer
	delivered int
	next      int // the first message that may still arrive
	marks     int // sent
	ended     bool
}

// deaf says whether the kernel's end may have got stuck. Where Linux 6.1 loses a
// packet behind the first of a message that is written, it takes each later message
// for a part of that one and throws it away: it forgets a message that broke off
// only together with a receive (do_class_d1e_error of rxe_resp.c), which a WRITE has
// none of, nor one with immediate data before its last packet.
func (x *lossy) deaf() bool {
	const tries = 3
	return x.to.kernel && x.loss && x.writes() && x.packets() > 1 && x.marks == tries
}

func newLossy(c *connection, n int) *lossy {
	x := &lossy{transfer: newTransfer(c, n)}
	for i := range x.dst {
		x.dst[i] = poison
	}
	return x
}

func (x *lossy) header() int {
	if x.transport == ibverbs.UD {
		return grh
	}
	return 0
}

func (x *lossy) writes() bool { return x.op == ibverbs.OpWrite || x.op == ibverbs.OpWriteWithImm }

// receiveAt is where receive i puts what it gets, and the bytes that it takes. The
// first n take messages, unless these are written to where they belong. Behind each
// is a gap.
func (x *lossy) receiveAt(i int) (off, size int) {
	if room := x.header() + max(x.size(), markerSize); i < x.n && !x.writes() {
		return i * (room + gap), room
	}
	return memory - reserve + i*(grh+markerSize+gap), x.header() + markerSize
}

func (x *lossy) receive() {
	x.t.Helper()
	for i := range x.n + markers {
		_, err := x.peer.PostRecv(ibverbs.RecvWR{ID: uint64(i), SGL: []ibverbs.SGE{x.to.mem.SGE(x.receiveAt(i))}})
		must(x.t, err)
	}
}

// mark sends a marker and takes what arrives until it does, or for some time.
func (x *lossy) mark() {
	x.t.Helper()
	if x.marks == markers {
		x.t.Fatalf("after %d of %d messages nothing arrives any more", x.delivered, x.n)
	}
	const at = memory - markerSize
	copy(x.from.buf.Bytes()[at:], marker(x.marks))
	wr := ibverbs.SendWR{ID: uint64(x.marks), Op: ibverbs.OpSend, Flags: ibverbs.Signaled, SGL: []ibverbs.SGE{x.from.mem.SGE(at, markerSize)}}
	x.address(&wr)
	_, err := x.qp.PostSend(wr)
	must(x.t, err)
	x.from.take(x.t, 1)
	x.marks++
	ctx, cancel := context.WithTimeout(x.t.Context(), markerWait)
	defer cancel()
	for !x.ended {
		wcs, err := x.to.wait(ctx)
		if errors.Is(err, context.DeadlineExceeded) {
			return
		}
		must(x.t, err)
		for i := range wcs {
			must(x.t, x.to.cq.Err(&wcs[i]))
			x.arrived(&wcs[i])
		}
	}
}

func marker(i int) []byte { return binary.BigEndian.AppendUint64([]byte("mark"), uint64(i)) }

// arrived is told of a completion of the receiver.
func (x *lossy) arrived(wc *ibverbs.WC) {
	x.t.Helper()
	off, room := x.receiveAt(int(wc.ID))
	area := x.to.buf.Bytes()[off : off+room+gap]
	size := int(wc.ByteLen)
	if wc.Op == ibverbs.WCRecvWriteWithImm {
		x.count(wc, x.dst, x.slot, size)
		return
	}
	if size > room || wc.Op != ibverbs.WCRecv || size < x.header() {
		x.t.Fatalf("receive of %d bytes completed as %+v", room, *wc)
	}
	if !bytes.Equal(area[room:], bytes.Repeat([]byte{poison}, gap)) { // up to there may be what came of a message before
		x.t.Errorf("something was written behind receive %d", wc.ID)
	}
	if x.transport == ibverbs.UD {
		x.checkHeader(wc, area[:grh])
	}
	got := area[x.header():size]
	for i := range x.marks {
		if bytes.Equal(got, marker(i)) {
			x.ended = true
			return
		}
	}
	x.count(wc, got, func(int) int { return 0 }, len(got))
}

// count finds the message of a completion, which is behind all that came before.
// Its bytes in memory are those from at on.
func (x *lossy) count(wc *ibverbs.WC, memory []byte, at func(int) int, size int) {
	x.t.Helper()
	imm := x.op == ibverbs.OpSendWithImm || x.op == ibverbs.OpWriteWithImm
	if size != x.size() || imm != (wc.Flags&ibverbs.WCWithImm != 0) {
		x.t.Fatalf("completion of the receiver is %+v", *wc)
	}
	for k := x.next; k < x.n; k++ {
		if imm && wc.Imm != x.imm[k] || !bytes.Equal(memory[at(k):][:size], x.src[x.slot(k):][:size]) {
			continue
		}
		x.delivered++
		x.next = k + 1
		return
	}
	x.t.Errorf("what arrived is none of the messages from %d on: %+v", x.next, *wc)
}

// checkHeader looks at the header before a datagram: of IPv4 its last 20 bytes.
func (x *lossy) checkHeader(wc *ibverbs.WC, header []byte) {
	x.t.Helper()
	src, dst := x.from.place.GID.GID, x.to.place.GID.GID
	gotSrc, gotDst := header[8:24], header[24:40]
	if !x.v6 {
		gotSrc, gotDst = header[32:36], header[36:40]
	}
	if !bytes.HasSuffix(src[:], gotSrc) || !bytes.HasSuffix(dst[:], gotDst) {
		x.t.Errorf("the header of a datagram from %v to %v is %x", src, dst, header)
	}
	if wc.SrcQP != x.qp.Num() || wc.Flags&ibverbs.WCGRH == 0 {
		x.t.Errorf("a datagram of QP %#x completed as %+v", x.qp.Num(), *wc)
	}
}

// written looks at the memory that messages were written to. One of which a packet
// was lost may be there up to that packet.
func (x *lossy) written() {
	x.t.Helper()
	for i := range x.n {
		at, size, mtu := x.slot(i), x.size(), x.mtu.Bytes()
		got, want := x.dst[at:at+size], x.src[at:at+size]
		whole := 0
		for whole < size && bytes.Equal(got[whole:min(whole+mtu, size)], want[whole:min(whole+mtu, size)]) {
			whole = min(whole+mtu, size)
		}
		if rest := got[whole:]; !bytes.Equal(rest, bytes.Repeat([]byte{poison}, len(rest))) {
			x.t.Errorf("message %d was written up to byte %d, and then something else", i, whole)
		}
		if !bytes.Equal(x.dst[at+size:at+size+gap], bytes.Repeat([]byte{poison}, gap)) {
			x.t.Errorf("something was written behind message %d", i)
		}
		if x.op == ibverbs.OpWrite && whole == size {
			x.delivered++
		}
	}
}
