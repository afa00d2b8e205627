package nvidia

import (
	"encoding/binary"
	"sync"

	"github.com/purerdma/purerdma/internal/offheap"
)

const frameSize = 8 << 10

// frame is memory for what the library reads and writes during one call. It is
// not Go memory, which may move or be on a stack that grows.
type frame struct {
	span offheap.Span
	mem  []byte
	used int
}

// frames are kept for the next call, as many as there were calls at one time.
type frames struct {
	sync.Mutex
	free []*frame
}

func (fs *frames) take() (*frame, error) {
	fs.Lock()
	defer fs.Unlock()
	if n := len(fs.free); n > 0 {
		f := fs.free[n-1]
		fs.free = fs.free[:n-1]
		return f, nil
	}
	span, err := offheap.Map(frameSize, offheap.Options{})
	if err != nil {
		return nil, err
	}
	return &frame{span: span, mem: span.Bytes()}, nil
}

func (fs *frames) put(f *frame) {
	clear(f.mem[:f.used])
	f.used = 0
	fs.Lock()
	defer fs.Unlock()
	fs.free = append(fs.free, f)
}

// room gives n zero bytes, aligned to 16.
func (f *frame) room(n int) (addr uintptr, b []byte) {
	start := (f.used + 15) &^ 15
	f.used = start + n
	return uintptr(f.span.Addr()) + uintptr(start), f.mem[start:f.used:f.used] // panics beyond frameSize: callers bound n
}

// put copies b and gives its address.
func (f *frame) put(b []byte) uintptr {
	addr, room := f.room(len(b))
	copy(room, b)
	return addr
}

// text is a C string.
func (f *frame) text(s string) uintptr {
	addr, room := f.room(len(s) + 1)
	copy(room, s)
	return addr
}

// word32 and word64 are numbers that the library writes.
type (
	word32 struct {
		addr uintptr
		b    []byte
	}
	word64 struct {
		addr uintptr
		b    []byte
	}
)

func (f *frame) word32() word32 { addr, b := f.room(4); return word32{addr, b} }
func (f *frame) word64() word64 { addr, b := f.room(8); return word64{addr, b} }

func (w word32) get() int32  { return int32(binary.NativeEndian.Uint32(w.b)) }
func (w word64) get() uint64 { return binary.NativeEndian.Uint64(w.b) }

// cstring is a text that the library wrote.
func cstring(b []byte) string {
	for i, c := range b {
		if c == 0 {
			return string(b[:i])
		}
	}
	return string(b)
}

// rewind gives back what was taken since used was at.
func (f *frame) rewind(at int) {
	clear(f.mem[at:f.used])
	f.used = at
}
