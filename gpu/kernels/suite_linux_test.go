package kernels

import (
	"bytes"
	"encoding/binary"
	"errors"
	"regexp"
	"slices"
	"testing"

	"go.uber.org/goleak"

	"github.com/purerdma/purerdma/gpu"
	"github.com/purerdma/purerdma/gpu/gputest"
	"github.com/purerdma/purerdma/gpu/kernels/kernelstest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func get[T any](v T, err error) func(testing.TB) T {
	return func(t testing.TB) T {
		t.Helper()
		must(t, err)
		return v
	}
}

// link is two ends on one GPU: a stream each, and the memory of channels between
// them.
type link struct {
	c          gpu.Context
	set        *Set
	send, recv gpu.Stream
	abort      gpu.Ptr
	words      gpu.Ptr // heads, then tails, of MaxChannels channels
	buffer     gpu.Ptr
	step       int
	next       [MaxChannels]uint64 // step with which the next message begins
}

const line = 128

func newLink(t testing.TB, c gpu.Context, channels, step int) *link {
	l := &link{c: c, step: step, set: get(Load(c))(t), send: get(c.NewStream())(t), recv: get(c.NewStream())(t),
		words: get(c.Alloc((2*MaxChannels + 1) * line))(t), buffer: get(c.Alloc(channels * Slots * step))(t)}
	l.abort = l.words + 2*MaxChannels*line
	l.clear(t, 0)
	return l
}

// clear makes all as at the start of a connection, or as after first steps.
func (l *link) clear(t testing.TB, first uint64) {
	words := make([]byte, (2*MaxChannels+1)*line)
	for i := range 2 * MaxChannels {
		copy(words[i*line:], le64(first))
	}
	must(t, l.c.WriteTo(l.words, words))
	info := get(l.c.Address(l.buffer))(t)
	must(t, l.c.Fill(l.buffer, 0, info.Len, l.send))
	must(t, l.c.Synchronize(l.send))
	for i := range l.next {
		l.next[i] = first
	}
}

func le64(v uint64) []byte {
	b := make([]byte, 8)
	for i := range b {
		b[i] = byte(v >> (8 * i))
	}
	return b
}

// channels splits n bytes at data. payload is what a step carries.
func (l *link) channels(count int, data gpu.Ptr, n, payload int) []Channel {
	cs := make([]Channel, count)
	part := (n/count + 15) &^ 15
	for i := range cs {
		at := min(i*part, n)
		to := min(at+part, n)
		if i == count-1 {
			to = n
		}
		cs[i] = Channel{Data: data + gpu.Ptr(at), Bytes: to - at, Buffer: l.buffer + gpu.Ptr(i*Slots*l.step),
			Head: l.words + gpu.Ptr(i*line), Tail: l.words + gpu.Ptr((MaxChannels+i)*line), First: l.next[i], Step: l.step}
	}
	return cs
}

func (l *link) moved(cs []Channel, payload int) {
	for i, c := range cs {
		l.next[i] += Steps(c.Bytes, payload)
	}
}

func pattern(n int, seed uint32) []byte {
	b := make([]byte, n)
	for i := range b {
		seed = seed*1664525 + 1013904223
		b[i] = byte(seed >> 24)
	}
	return b
}

// message moves n bytes, from offset a of the source to offset b of the
// destination, and checks them and what lies around.
func message(t *testing.T, l *link, ll bool, count, n, a, b int, seed uint32) {
	t.Helper()
	src, dst := get(l.c.Alloc(n+64))(t), get(l.c.Alloc(n+64))(t)
	defer func() { must(t, l.c.Free(src)); must(t, l.c.Free(dst)) }()
	want := pattern(n, seed)
	must(t, l.c.WriteTo(src+gpu.Ptr(a), want))
	must(t, l.c.WriteTo(dst, bytes.Repeat([]byte{0xee}, n+64)))
	payload, send, recv := l.step, l.set.SendSimple, l.set.RecvSimple
	if ll {
		payload, send, recv = l.step/2, l.set.SendLL, l.set.RecvLL
	}
	out, in := l.channels(count, src+gpu.Ptr(a), n, payload), l.channels(count, dst+gpu.Ptr(b), n, payload)
	must(t, send(l.send, l.abort, out))
	must(t, recv(l.recv, l.abort, in))
	must(t, l.c.Synchronize(l.send))
	must(t, l.c.Synchronize(l.recv))
	l.moved(out, payload)
	got := make([]byte, n+64)
	must(t, l.c.ReadFrom(got, dst))
	if !bytes.Equal(got[b:b+n], want) {
		for i := range want {
			if got[b+i] != want[i] {
				t.Fatalf("byte %d of %d is %#x, want %#x (offsets %d, %d; %d channels)", i, n, got[b+i], want[i], a, b, count)
			}
		}
	}
	for i, v := range got {
		if (i < b || i >= b+n) && v != 0xee {
			t.Fatalf("byte %d is outside the message and was written", i-b)
		}
	}
}

// suite is what the kernels must do on any GPU.
func suite(t *testing.T, c gpu.Context, biggest int) {
	for _, protocol := range []string{"SIMPLE", "LL"} {
		ll := protocol == "LL"
		t.Run(protocol, func(t *testing.T) {
			const step = 4096
			l := newLink(t, c, 4, step)
			payload := step
			if ll {
				payload /= 2
			}
			sizes := []int{0, 1, 3, 4, 7, 8, 9, 15, 16, 17, payload - 1, payload, payload + 1, 8 * payload, 8*payload + 5, 9 * payload, 40*payload + 3, biggest}
			for i, n := range sizes {
				message(t, l, ll, 1, n, 0, 0, uint32(i))
				message(t, l, ll, 4, n, 0, 0, uint32(i+100))
			}
			for _, o := range [][2]int{{0, 1}, {1, 0}, {8, 0}, {3, 5}, {4, 4}, {16, 32}} {
				message(t, l, ll, 2, 3*payload+7, o[0], o[1], uint32(o[0]*100+o[1]))
			}
			must(t, l.set.Close())
		})
	}
	t.Run("flag wraps", func(t *testing.T) {
		const step = 512
		l := newLink(t, c, 1, step)
		l.clear(t, 0x7ffffff8-3)
		message(t, l, true, 1, 40*step/2, 0, 0, 1)
		l.clear(t, 0xfffffff8-3)
		message(t, l, true, 1, 40*step/2+1, 0, 0, 2)
		must(t, l.set.Close())
	})
	t.Run("sizes for a proxy", func(t *testing.T) { proxied(t, c) })
	t.Run("abort", func(t *testing.T) {
		l := newLink(t, c, 2, 4096)
		n := 100 * 4096
		p := get(c.Alloc(n))(t)
		must(t, l.set.SendSimple(l.send, l.abort, l.channels(2, p, n, 4096)))
		must(t, l.set.RecvLL(l.recv, l.abort, l.channels(2, p, n, 2048)))
		must(t, c.WriteTo(l.abort, le64(1)))
		must(t, c.Synchronize(l.send))
		must(t, c.Synchronize(l.recv))
		must(t, l.set.Close())
	})
	t.Run("rounds", func(t *testing.T) {
		l := newLink(t, c, 1, 4096)
		must(t, l.set.Rounds(l.send, l.abort, l.buffer, l.buffer+line, 1000, true))
		must(t, l.set.Rounds(l.recv, l.abort, l.buffer+line, l.buffer, 1000, false))
		must(t, c.Synchronize(l.recv))
		must(t, c.Synchronize(l.send))
		must(t, l.set.Close())
	})
	t.Run("lines", func(t *testing.T) { lines(t, c) })
	t.Run("refused", func(t *testing.T) {
		l := newLink(t, c, 1, 4096)
		for name, err := range map[string]error{"no end": l.set.Lines(l.send, l.abort, Channel{}, Channel{}, 1),
			"step 24":  l.set.Lines(l.send, l.abort, Channel{Buffer: l.buffer, Head: l.words, Step: 24}, Channel{}, 1),
			"negative": l.set.Lines(l.send, l.abort, Channel{Buffer: l.buffer, Head: l.words, Step: 16}, Channel{}, -1)} {
			if err == nil {
				t.Errorf("lines, %s: they were launched", name)
			}
		}
		for name, cs := range map[string][]Channel{"none": nil, "65": make([]Channel, 65), "step 24": {{Step: 24}}, "step 0": {{}}, "negative": {{Step: 16, Bytes: -1}}} {
			if err := l.set.SendSimple(l.send, l.abort, cs); err == nil {
				t.Errorf("%s was launched", name)
			}
		}
		must(t, l.set.Close())
	})
}

// lines has one thread make messages of 8 bytes, a second give them back and a third take them, of which the last is looked at.
func lines(t *testing.T, c gpu.Context) {
	const step, count = 64, 1000
	for _, first := range []uint64{0, 0xfffffff8 - 3} {
		l := newLink(t, c, 2, step)
		l.clear(t, first)
		third := get(c.NewStream())(t)
		there, back := l.channels(2, 0, 0, 8)[0], l.channels(2, 0, 0, 8)[1]
		must(t, l.set.Lines(l.send, l.abort, Channel{}, there, count))
		must(t, l.set.Lines(third, l.abort, there, back, count))
		must(t, l.set.Lines(l.recv, l.abort, back, Channel{}, count))
		for _, s := range []gpu.Stream{l.send, third, l.recv} {
			must(t, c.Synchronize(s))
		}
		last := make([]byte, 16)
		must(t, c.ReadFrom(last, back.Buffer+gpu.Ptr((first+count-1)%Slots*step)))
		flag := le64(uint64(uint32(first + count)))[:4]
		if want := slices.Concat(le64(count)[:4], flag, le64(0)[:4], flag); !bytes.Equal(last, want) {
			t.Errorf("the last line is % x, want % x", last, want)
		}
		for _, at := range []gpu.Ptr{there.Head, back.Head} {
			head := make([]byte, 8)
			must(t, c.ReadFrom(head, at))
			if got := binary.LittleEndian.Uint64(head); got != first+count {
				t.Errorf("head %d, want %d", got, first+count)
			}
		}
		must(t, l.set.Lines(l.send, l.abort, l.channels(2, 0, 0, 8)[0], Channel{}, count)) // that never come
		must(t, c.WriteTo(l.abort, le64(1)))
		must(t, c.Synchronize(l.send))
		must(t, errors.Join(c.CloseStream(third), l.set.Close()))
	}
}

// proxied has producers leave the size of each step behind the tail, as a proxy wants it.
func proxied(t *testing.T, c gpu.Context) {
	const step, fifo, slot = 512, 128, 24
	l := newLink(t, c, 1, step)
	recvMem := get(c.Alloc(4096))(t)
	must(t, c.WriteTo(recvMem, make([]byte, 4096)))
	for _, p := range []struct {
		send, recv    func(gpu.Stream, gpu.Ptr, []Channel) error
		payload, line int
	}{{l.set.SendSimple, l.set.RecvSimple, step, 1}, {l.set.SendLL, l.set.RecvLL, step / 2, 2}} {
		n := 3*p.payload + 40
		data := get(c.Alloc(n))(t)
		first := l.next[0]
		for _, run := range []func(gpu.Stream, gpu.Ptr, []Channel) error{p.send, p.recv} {
			cs := l.channels(1, data, n, p.payload)
			cs[0].Tail, cs[0].FIFO = recvMem, recvMem+fifo
			must(t, run(l.send, l.abort, cs))
		}
		must(t, c.Synchronize(l.send))
		l.moved(l.channels(1, data, n, p.payload), p.payload)
		got := make([]byte, 4096)
		must(t, c.ReadFrom(got, recvMem))
		for i, want := range []int{p.payload, p.payload, p.payload, 40} {
			at := fifo + slot*int((first+uint64(i))%Slots) + 8
			if size := binary.LittleEndian.Uint64(got[at:]); size != uint64(want*p.line) {
				t.Errorf("step %d has %d bytes, want %d", i, size, want*p.line)
			}
		}
		must(t, c.Free(data))
	}
	cs := []Channel{{Step: step, Tail: recvMem + fifo, FIFO: recvMem}}
	if err := l.set.SendSimple(l.send, l.abort, cs); err == nil {
		t.Error("sizes before the tail were taken")
	}
	must(t, c.Free(recvMem))
	must(t, l.set.Close())
}

func TestSteps(t *testing.T) {
	for _, c := range []struct {
		n, payload int
		want       uint64
	}{{0, 10, 1}, {1, 10, 1}, {10, 10, 1}, {11, 10, 2}, {30, 10, 3}} {
		if got := Steps(c.n, c.payload); got != c.want {
			t.Errorf("%d bytes of %d: %d steps, want %d", c.n, c.payload, got, c.want)
		}
	}
}

func TestKernels(t *testing.T) {
	d := gputest.New(gputest.Config{Kernels: kernelstest.Kernels()})
	c := get(d.Open(0))(t)
	suite(t, c, 100000)
	must(t, c.Close())
	if left := d.Left(); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
}

// A kernel that is put onto the GPU while another waits for it never comes: all there are in the text are loaded in one call, before
// the first is launched.
func TestAllAreLoadedFirst(t *testing.T) {
	var there []string
	for _, m := range regexp.MustCompile(`(?m)^\.visible \.entry (\w+)\(`).FindAllSubmatch(text, -1) {
		there = append(there, string(m[1]))
	}
	asked := names[:]
	slices.Sort(there)
	if !slices.Equal(there, slices.Sorted(slices.Values(asked))) {
		t.Errorf("kernels.ptx has %v, the package loads %v", there, asked)
	}
	d := gputest.New(gputest.Config{Kernels: kernelstest.Kernels()})
	c := get(d.Open(0))(t)
	l := newLink(t, c, 1, 4096)
	if calls := d.Calls(); calls["Load"] != 1 || calls["Launch"] != 0 {
		t.Errorf("loaded by %d calls, %d launches before", calls["Load"], calls["Launch"])
	}
	message(t, l, false, 1, 100, 0, 0, 1)
	message(t, l, true, 1, 100, 0, 0, 1)
	if n := d.Calls()["Load"]; n != 1 {
		t.Errorf("%d calls loaded kernels", n)
	}
	must(t, l.set.Close())
	must(t, c.Close())
}
