package hostend

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/purerdma/purerdma/gpu"
	"github.com/purerdma/purerdma/gpu/gputest"
	"github.com/purerdma/purerdma/gpu/kernels"
	"github.com/purerdma/purerdma/gpu/kernels/kernelstest"
	"github.com/purerdma/purerdma/mr"
	"github.com/purerdma/purerdma/transport/driver"
)

// link is a connection in the host's memory, and watches over a peer that is there until gone is set. asked is called when it is asked for.
type link struct {
	driver.Connector
	conn  driver.Conn
	gone  error
	asked func()
	all   *mr.Buffer
}

func (l *link) Conn() *driver.Conn { return &l.conn }

func (l *link) Err() error {
	if l.asked != nil {
		l.asked()
	}
	return l.gone
}

const (
	header  = 4096
	llSize  = 16 << 10
	bufSize = 64 << 10
)

func newLink(t testing.TB, fifo bool) *link {
	t.Helper()
	all, err := mr.Alloc(2*header + llSize + bufSize)
	must(t, err)
	l := &link{all: all, conn: driver.Conn{FIFO: fifo}}
	off := 0
	cut := func(n int) *mr.Buffer {
		b, err := all.Slice(off, n)
		must(t, err)
		t.Cleanup(func() { must(t, b.Close()) })
		off += n
		return b
	}
	l.conn.SendMem, l.conn.RecvMem = cut(header), cut(header)
	l.conn.Buffers = [driver.Protocols]*mr.Buffer{driver.LL: cut(llSize), driver.Simple: cut(bufSize)}
	t.Cleanup(func() { must(t, all.Close()) })
	return l
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func ends(t testing.TB, l *link) (*Sender, *Receiver) {
	t.Helper()
	s, err := NewSender(l)
	must(t, err)
	r, err := NewReceiver(l)
	must(t, err)
	return s, r
}

func text(n, salt int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(i*7 + i>>8*3 + salt*31 + 1)
	}
	return b
}

// sizes are all that lines and steps make edges at; the long ones, which take most of the time, are left out of a short run.
func sizes() (all []int) {
	edges := []int{0, 4, 8, 16, llSize / 16, llSize / 2, bufSize / 8, bufSize, 3 * bufSize}
	if testing.Short() {
		edges = edges[:len(edges)-2]
	}
	for _, at := range edges {
		for d := -1; d <= 1; d++ {
			if at+d >= 0 {
				all = append(all, at+d)
			}
		}
	}
	return all
}

// onGPU is the other end: kernels on a GPU that has the memory registered.
type onGPU struct {
	g      gpu.Context
	set    *kernels.Set
	stream gpu.Stream
	base   gpu.Ptr
	data   gpu.Ptr
	abort  gpu.Ptr
	step   uint64
}

func newGPU(t *testing.T, l *link) *onGPU {
	d := gputest.New(gputest.Config{Kernels: kernelstest.Kernels()})
	g, err := d.Open(0)
	must(t, err)
	k := &onGPU{g: g}
	k.set, err = kernels.Load(g)
	must(t, err)
	k.stream, err = g.NewStream()
	must(t, err)
	k.base, err = g.RegisterHost(uintptr(l.all.Addr()), l.all.Len())
	must(t, err)
	k.data, err = g.Alloc(4*bufSize + 64)
	must(t, err)
	k.abort, err = g.Alloc(64)
	must(t, err)
	must(t, g.WriteTo(k.abort, make([]byte, 8)))
	t.Cleanup(func() { must(t, g.Close()) })
	return k
}

// launch enqueues a kernel for n bytes.
func (k *onGPU) launch(p driver.Protocol, send bool, n int) error {
	c := kernels.Channel{Data: k.data, Bytes: n, Head: k.base, Tail: k.base + header, First: k.step}
	f, payload := map[bool]func(gpu.Stream, gpu.Ptr, []kernels.Channel) error{true: k.set.SendSimple, false: k.set.RecvSimple}[send], bufSize/driver.Steps
	c.Buffer, c.Step = k.base+2*header+llSize, payload
	if p == driver.LL {
		f = map[bool]func(gpu.Stream, gpu.Ptr, []kernels.Channel) error{true: k.set.SendLL, false: k.set.RecvLL}[send]
		c.Buffer, c.Step = k.base+2*header, llSize/driver.Steps
		payload = c.Step / 2
	}
	k.step += kernels.Steps(n, payload)
	return f(k.stream, k.abort, []kernels.Channel{c})
}

// Messages of all sizes go from the processor to kernels and back, by either protocol after the other.
func TestAgainstKernels(t *testing.T) {
	t.Run("to the GPU", func(t *testing.T) {
		l := newLink(t, false)
		k := newGPU(t, l)
		s, _ := ends(t, l)
		each(t, func(p driver.Protocol, n int, want []byte) error {
			if err := k.launch(p, false, n); err != nil {
				return err
			}
			if err := errors.Join(s.Send(t.Context(), p, want), k.g.Synchronize(k.stream)); err != nil {
				return err
			}
			got := make([]byte, n)
			return errors.Join(k.g.ReadFrom(got, k.data), same(got, want))
		})
	})
	t.Run("from the GPU", func(t *testing.T) {
		l := newLink(t, false)
		k := newGPU(t, l)
		_, r := ends(t, l)
		each(t, func(p driver.Protocol, n int, want []byte) error {
			if err := errors.Join(k.g.WriteTo(k.data, want), k.launch(p, true, n)); err != nil {
				return err
			}
			got := make([]byte, n)
			return errors.Join(r.Recv(t.Context(), p, got), k.g.Synchronize(k.stream), same(got, want))
		})
	})
}

func each(t *testing.T, f func(p driver.Protocol, n int, want []byte) error) {
	for i, n := range sizes() {
		for _, p := range []driver.Protocol{driver.Simple, driver.LL} {
			if err := f(p, n, text(n, i)); err != nil {
				t.Fatalf("%d bytes by %v: %v", n, p, err)
			}
		}
	}
}

func same(got, want []byte) error {
	if !bytes.Equal(got, want) {
		return errors.New("the bytes differ")
	}
	return nil
}

// The lines of a message are NCCL's, byte for byte; the counters too.
func TestBytes(t *testing.T) {
	l := newLink(t, true)
	s, r := ends(t, l)
	must(t, s.Send(t.Context(), driver.LL, []byte{1, 2, 3, 4, 5, 6, 7, 8, 9, 10}))
	want := []byte{1, 2, 3, 4, 1, 0, 0, 0, 5, 6, 7, 8, 1, 0, 0, 0, 9, 10, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0}
	if got := l.conn.Buffers[driver.LL].Bytes(); !bytes.Equal(got[:32], want) || !bytes.Equal(got[32:64], make([]byte, 32)) {
		t.Errorf("lines % x", got[:64])
	}
	must(t, s.Send(t.Context(), driver.Simple, []byte("hello")))
	recv := l.conn.RecvMem.Bytes()
	if got := l.conn.Buffers[driver.Simple].Bytes()[bufSize/8:]; string(got[:5]) != "hello" || binary.LittleEndian.Uint64(recv) != 2 {
		t.Errorf("slot 1 has %q, the tail is %d", got[:5], recv[0])
	}
	for slot, size := range []uint64{32, 5} {
		if got := binary.LittleEndian.Uint64(recv[128+24*slot+8:]); got != size {
			t.Errorf("slot %d has size %d, want %d", slot, got, size)
		}
	}
	must(t, r.Recv(t.Context(), driver.LL, make([]byte, 10)))
	must(t, r.Recv(t.Context(), driver.Simple, make([]byte, 5)))
	if head := binary.LittleEndian.Uint64(l.conn.SendMem.Bytes()); head != 2 {
		t.Errorf("head is %d, want 2", head)
	}
}

// Where the flags come around every line of the slot is written.
func TestFlagWraps(t *testing.T) {
	for _, first := range []uint64{0x7ffffff8 - 3, 0xfffffff8 - 3} {
		l := newLink(t, false)
		s, r := ends(t, l)
		s.step, r.step = first, first
		binary.LittleEndian.PutUint64(l.conn.SendMem.Bytes(), first)
		for i := range 20 {
			want := text(3, i)
			must(t, s.Send(t.Context(), driver.LL, want))
			if step := first + uint64(i); step&wraps == wraps {
				at := int(step%driver.Steps+1)*llSize/driver.Steps - 4
				if flag := binary.LittleEndian.Uint32(l.conn.Buffers[driver.LL].Bytes()[at:]); flag != uint32(step+1) {
					t.Errorf("step %#x: the last line has flag %#x", step, flag)
				}
			}
			got := make([]byte, 3)
			must(t, r.Recv(t.Context(), driver.LL, got))
			must(t, same(got, want))
		}
	}
}

// Waits end with the context and with the peer; counters that cannot be are an error.
func TestEnds(t *testing.T) {
	gone := errors.New("the peer is gone")
	stopped, stop := context.WithCancelCause(context.Background())
	stop(errors.New("no more"))
	for name, c := range map[string]struct {
		ctx  context.Context
		peer error
		head uint64
		tail uint64
		want string
	}{
		"context":           {stopped, nil, 0, 0, "no more"},
		"peer":              {context.Background(), gone, 0, 0, gone.Error()},
		"counters that lie": {context.Background(), nil, 9, 9, ErrProtocol.Error()},
	} {
		for _, p := range []driver.Protocol{driver.LL, driver.Simple} {
			l := newLink(t, false)
			l.gone = c.peer
			s, r := ends(t, l)
			for range driver.Steps {
				must(t, s.Send(t.Context(), driver.LL, nil))
			}
			binary.LittleEndian.PutUint64(l.conn.SendMem.Bytes(), c.head)
			binary.LittleEndian.PutUint64(l.conn.RecvMem.Bytes(), c.tail)
			if err := s.Send(c.ctx, p, nil); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%s: send by %v: %v", name, p, err)
			}
			if c.tail != 0 && p == driver.LL {
				continue // lines have no counter
			}
			r.step = 0
			if p == driver.LL {
				r.step = driver.Steps
			}
			if err := r.Recv(c.ctx, p, nil); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%s: receive by %v: %v", name, p, err)
			}
		}
	}
}

// A peer that sends, or makes room, and closes while this end waits has done both before it is gone.
func TestLastWord(t *testing.T) {
	for _, p := range []driver.Protocol{driver.LL, driver.Simple} {
		l := newLink(t, false)
		s, r := ends(t, l)
		want := text(100, int(p))
		l.asked = func() {
			if l.gone == nil {
				must(t, s.Send(t.Context(), p, want))
				l.gone = io.EOF
			}
		}
		got := make([]byte, len(want))
		must(t, r.Recv(t.Context(), p, got))
		must(t, same(got, want))
		if err := r.Recv(t.Context(), p, got); !errors.Is(err, io.EOF) {
			t.Errorf("%v: after the last message: %v", p, err)
		}

		l = newLink(t, false)
		s, r = ends(t, l)
		for range driver.Steps {
			must(t, s.Send(t.Context(), p, want))
		}
		l.asked = func() {
			if l.gone == nil {
				must(t, r.Recv(t.Context(), p, got))
				l.gone = io.EOF
			}
		}
		must(t, s.Send(t.Context(), p, want))
		if err := s.Send(t.Context(), p, want); !errors.Is(err, io.EOF) {
			t.Errorf("%v: after the last room: %v", p, err)
		}
	}
}

// Whoever waits long sleeps in between and still finds what comes.
func TestLongWait(t *testing.T) {
	for _, p := range []driver.Protocol{driver.LL, driver.Simple} {
		l := newLink(t, false)
		s, r := ends(t, l)
		asked := 0
		l.asked = func() {
			if asked++; asked == restless/between+20 {
				must(t, s.Send(t.Context(), p, []byte("late")))
			}
		}
		got := make([]byte, 4)
		must(t, r.Recv(t.Context(), p, got))
		if string(got) != "late" {
			t.Errorf("%v: %q", p, got)
		}
	}
}

func TestRefused(t *testing.T) {
	l := newLink(t, false)
	l.conn.Buffers[driver.LL] = nil
	s, r := ends(t, l)
	for p, want := range map[driver.Protocol]string{driver.LL128: "LL128 is not for the host's memory", driver.LL: "no buffer of LL", 9: "unsupported"} {
		for _, err := range []error{s.Send(t.Context(), p, nil), r.Recv(t.Context(), p, nil)} {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%v: %v", p, err)
			}
		}
	}
	l.conn.SendMem = nil
	_, err := NewSender(l)
	_, err2 := NewReceiver(l)
	if err == nil || err2 == nil {
		t.Error("ends without counters")
	}
}

func TestChoose(t *testing.T) {
	for _, c := range []struct {
		n, channels int
		want        driver.Protocol
	}{{0, 1, driver.LL}, {16 << 10, 1, driver.LL}, {16<<10 + 1, 1, driver.Simple}, {16<<10 + 1, 2, driver.LL}} {
		if got := Choose(c.n, c.channels); got != c.want {
			t.Errorf("%d bytes, %d channels: %v", c.n, c.channels, got)
		}
	}
}

func TestNoAllocations(t *testing.T) {
	for _, p := range []driver.Protocol{driver.LL, driver.Simple} {
		l := newLink(t, false)
		s, r := ends(t, l)
		b := text(1000, 1)
		n := testing.AllocsPerRun(100, func() {
			if err := errors.Join(s.Send(context.Background(), p, b), r.Recv(context.Background(), p, b)); err != nil {
				panic(fmt.Sprint(err))
			}
		})
		if n != 0 {
			t.Errorf("%v: %v allocations", p, n)
		}
	}
}
