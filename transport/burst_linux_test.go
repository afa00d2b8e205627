package transport

import (
	"bytes"
	"errors"
	"testing"

	"github.com/purerdma/purerdma/gpu"
	"github.com/purerdma/purerdma/gpu/gputest"
	"github.com/purerdma/purerdma/transport/driver"
)

// onOneGPU is a connector of a layout in memory of a GPU of this process.
type onOneGPU struct {
	fakeConnector
	conn Conn
}

func (o *onOneGPU) Conn() *Conn  { return &o.conn }
func (o *onOneGPU) Proxy() Proxy { return nil }
func (o *onOneGPU) Close() error { return nil }

// On a GPU one copy moves up to half of the steps, never beyond the buffer's end, and each step is as full as without that.
func TestOneCopyMovesSeveralSteps(t *testing.T) {
	const step = 4096
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	machine := gputest.New(gputest.Config{})
	g, err := machine.Open(0)
	must(err)
	piece, err := g.Alloc(step + driver.Steps*step)
	must(err)
	must(g.WriteTo(piece, make([]byte, step)))
	message, err := g.Alloc(20 * step)
	must(err)
	came, err := g.Alloc(20 * step)
	must(err)
	sent := bytes.Repeat([]byte("0123456789abcde"), 20*step/15+1)[:20*step]
	must(g.WriteTo(message, sent))

	c := &onOneGPU{conn: Conn{GPU: &driver.GPUConn{Context: g, Head: piece, Tail: piece + 8}}}
	c.conn.GPU.Buffers[Simple], c.conn.GPU.Steps[Simple] = piece+step, step
	out, _, err := newEnd(c, true)
	must(err)
	_, in, err := newEnd(c, false)
	must(err)

	b := span{c: g, p: message, n: 20 * step}
	off, ok, err := out.begin(b.n, b)
	if !ok || err != nil || off != step-lineBytes {
		t.Fatalf("begin: %d, %v, %v", off, ok, err)
	}
	put := func(steps int) {
		t.Helper()
		n, err := out.put(b.from(off, b.n))
		if must(err); n != min(steps*step, b.n-off) {
			t.Fatalf("put %d bytes, want %d steps of %d", n, steps, step)
		}
		off += n
	}
	taken := 0
	to := span{c: g, p: came, n: 20 * step}
	take := func(steps int) {
		t.Helper()
		piece, ok, err := in.next(b.n - taken)
		if must(err); !ok && steps > 0 || piece.n != min(steps*step, b.n-taken) {
			t.Fatalf("took %d bytes, %v, want %d steps of %d", piece.n, ok, steps, step)
		}
		if ok {
			n, err := to.from(taken, to.n).copy(piece)
			must(err)
			taken += n
			must(in.release())
		}
	}
	put(4)
	put(3) // to the buffer's end
	put(0) // it is full
	size, first, ok, err := in.header()
	if !ok || err != nil || size != b.n {
		t.Fatalf("header: %d, %v, %v", size, ok, err)
	}
	taken, err = to.copy(first)
	must(err)
	must(in.release())
	put(1) // what there is
	take(4)
	take(3)
	take(1)
	take(0)
	put(4)
	take(4)
	put(3)
	put(4)
	put(1) // less than a step
	take(3)
	take(4)
	take(1)
	got := make([]byte, len(sent))
	if must(g.ReadFrom(got, came)); off != b.n || taken != b.n || !bytes.Equal(got, sent) {
		t.Errorf("%d bytes sent and %d received of %d, or other bytes", off, taken, b.n)
	}
	must(errors.Join(out.cut(), in.cut(), out.free(), in.free()))
	for _, p := range []gpu.Ptr{piece, message, came} {
		must(g.Free(p))
	}
	must(g.Close())
	if left := machine.Left(); len(left) > 0 {
		t.Errorf("left on the GPU: %v", left)
	}
}
