package uverbs

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"

	"github.com/purerdma/purerdma/ibverbs/driver"
	"github.com/purerdma/purerdma/ibverbs/internal/uapi"
	"github.com/purerdma/purerdma/internal/offheap"
)

// Layout of a frame: the header, room for maxAttrs attributes, then payloads.
const (
	hdrSize     = 24
	attrSize    = 16
	maxAttrs    = 32
	payloadFrom = hdrSize + maxAttrs*attrSize
	frameSize   = 4096

	maxLen = math.MaxUint16 // of one attribute
)

// Offsets within an attribute.
const (
	attrLen   = 2
	attrFlags = 4
	attrData  = 8
)

var errTooManyAttrs = fmt.Errorf("command of more than %d attributes", maxAttrs)

// frame is one command: a builder for its attributes and, after do, a reader of
// its outputs. A mistake in building is kept and returned by do. Until do, the
// data of a pointer is its offset, so that the memory can grow.
type frame struct {
	mem   offheap.Span
	b     []byte // mem.Bytes()
	n     int    // attributes
	end   int    // of the payloads
	ptrs  [maxAttrs]bool
	err   error
	ready bool // pointers are addresses, the header is complete
}

// output is an attribute that the kernel fills.
type output struct {
	attr     int // its number
	off, len int // its payload; len 0: a handle or descriptor in the attribute
}

func newFrame() (*frame, error) {
	mem, err := offheap.Map(frameSize, offheap.Options{})
	if err != nil {
		return nil, err
	}
	return &frame{mem: mem, b: mem.Bytes()}, nil
}

// begin starts a command over. All bytes that an earlier one used are zeroed,
// so that a response that the kernel does not write reads as zero.
func (f *frame) begin(driverID uint32, object, method uint16) {
	clear(f.b[:max(f.end, payloadFrom)])
	f.n, f.end, f.err, f.ready = 0, payloadFrom, nil, false
	binary.NativeEndian.PutUint16(f.b[2:], object)
	binary.NativeEndian.PutUint16(f.b[4:], method)
	binary.NativeEndian.PutUint32(f.b[16:], driverID)
}

// attr adds an attribute of n bytes. All are mandatory: a kernel that does not
// know one refuses the command.
func (f *frame) attr(id uint16, n int, data uint64, ptr bool) int {
	switch {
	case f.n == maxAttrs:
		f.fail(errTooManyAttrs)
		return 0
	case n > maxLen:
		f.fail(fmt.Errorf("attribute %d of %d bytes, more than a length field holds", id, n))
		return 0
	}
	i := f.n
	f.n++
	f.ptrs[i] = ptr
	a := f.b[hdrSize+i*attrSize:]
	binary.NativeEndian.PutUint16(a, id)
	binary.NativeEndian.PutUint16(a[attrLen:], uint16(n))
	binary.NativeEndian.PutUint16(a[attrFlags:], uapi.AttrFMandatory)
	binary.NativeEndian.PutUint64(a[attrData:], data)
	return i
}

func (f *frame) fail(err error) {
	if f.err == nil {
		f.err = err
	}
}

// room reserves n zeroed payload bytes, moving to larger memory if need be.
func (f *frame) room(n int) int {
	off := f.end
	if n < 0 || n > maxLen {
		f.fail(errors.New("payload longer than a length field holds"))
		return off
	}
	end := off + (n+7)&^7
	if end > len(f.b) {
		mem, err := offheap.Map(2*end, offheap.Options{})
		if err != nil {
			f.fail(err)
			return off
		}
		copy(mem.Bytes(), f.b[:f.end])
		_ = f.mem.Release()
		f.mem, f.b = mem, mem.Bytes()
	}
	f.end = end
	return off
}

// in adds an input. Up to eight bytes lie in the attribute itself.
func (f *frame) in(id uint16, v []byte) {
	if len(v) <= uapi.InlineMax {
		i := f.attr(id, len(v), 0, false)
		copy(f.b[hdrSize+i*attrSize+attrData:], v)
		return
	}
	off := f.room(len(v))
	if f.err == nil {
		copy(f.b[off:f.end], v)
	}
	f.attr(id, len(v), uint64(off), true)
}

func (f *frame) in32(id uint16, v uint32) {
	var b [4]byte
	binary.NativeEndian.PutUint32(b[:], v)
	f.in(id, b[:])
}

func (f *frame) in64(id uint16, v uint64) {
	var b [8]byte
	binary.NativeEndian.PutUint64(b[:], v)
	f.in(id, b[:])
}

// constant adds a value of a CONST attribute, eight bytes whatever its type.
func (f *frame) constant(id uint16, v uint64) {
	f.attr(id, 8, v, false)
}

// out adds an output of n bytes. What the kernel does not write of it is zero.
func (f *frame) out(id uint16, n int) output {
	off := f.room(n)
	return output{attr: f.attr(id, n, uint64(off), true), off: off, len: n}
}

// handle adds an existing object, file an existing descriptor.
func (f *frame) handle(id uint16, h uint32) { f.attr(id, 0, uint64(h), false) }
func (f *frame) file(id uint16, fd int)     { f.attr(id, 0, uint64(fd), false) }

// created adds an object or descriptor that the command makes.
func (f *frame) created(id uint16) output {
	return output{attr: f.attr(id, 0, 0, false)}
}

// addressed adds an input of eight bytes that is the address of n bytes, which
// the kernel fills.
func (f *frame) addressed(id uint16, n int) output {
	off := f.room(n)
	return output{attr: f.attr(id, 8, uint64(off), true), off: off, len: n}
}

// uhw adds the driver's part.
func (f *frame) uhw(u UHW) output {
	if n := len(u.Addressed); n > 0 {
		return f.addressed(uapi.AttrUHWIn, n)
	}
	if len(u.In) > 0 {
		f.in(uapi.AttrUHWIn, u.In)
	}
	if len(u.Out) == 0 {
		return output{}
	}
	return f.out(uapi.AttrUHWOut, len(u.Out))
}

// seal completes the header and turns offsets into addresses.
func (f *frame) seal() error {
	if f.err != nil || f.ready {
		return f.err
	}
	length := hdrSize + f.n*attrSize
	if length > uapi.MaxFrame {
		return errTooManyAttrs
	}
	binary.NativeEndian.PutUint16(f.b, uint16(length))
	binary.NativeEndian.PutUint16(f.b[6:], uint16(f.n))
	base := f.mem.Addr()
	for i, ptr := range f.ptrs[:f.n] {
		if ptr {
			data := f.b[hdrSize+i*attrSize+attrData:]
			binary.NativeEndian.PutUint64(data, base+binary.NativeEndian.Uint64(data))
		}
	}
	f.ready = true
	return nil
}

// do runs the command.
func (f *frame) do(k Kernel, fd int) error {
	if err := f.seal(); err != nil {
		return err
	}
	return k.Ioctl(fd, f.b[:f.end])
}

// bytes is the payload of o, valid until the frame is used again.
func (f *frame) bytes(o output) []byte { return f.b[o.off : o.off+o.len] }

func (f *frame) u32(o output) uint32 { return binary.NativeEndian.Uint32(f.bytes(o)) }
func (f *frame) u64(o output) uint64 { return binary.NativeEndian.Uint64(f.bytes(o)) }

// newHandle is the object that was made; handles are 32 bits.
func (f *frame) newHandle(o output) (uint32, error) {
	v := f.data(o)
	if v > math.MaxUint32 {
		return 0, &ResponseError{"object handle", v}
	}
	return uint32(v), nil
}

// data is the descriptor or handle that was made, unchecked.
func (f *frame) data(o output) uint64 {
	return binary.NativeEndian.Uint64(f.b[hdrSize+o.attr*attrSize+attrData:])
}

func checkFD(v uint64) (int, error) {
	if v > math.MaxInt32 {
		return -1, &ResponseError{"descriptor", v}
	}
	return int(v), nil
}

// frame starts a command. There are as many frames as commands ran at once.
func (d *Device) frame(object, method uint16) (*frame, error) {
	d.mu.Lock()
	if d.closed {
		d.mu.Unlock()
		return nil, driver.ErrClosed
	}
	var f *frame
	if n := len(d.free); n > 0 {
		f, d.free = d.free[n-1], d.free[:n-1]
	}
	d.mu.Unlock()
	if f == nil {
		var err error
		if f, err = newFrame(); err != nil {
			return nil, err
		}
	}
	f.begin(d.node.DriverID, object, method)
	return f, nil
}

// put takes a frame back. One that grew is unmapped: large commands are rare.
func (d *Device) put(f *frame) {
	d.mu.Lock()
	keep := !d.closed && len(f.b) == frameSize
	if keep {
		d.free = append(d.free, f)
	}
	d.mu.Unlock()
	if !keep {
		_ = f.mem.Release()
	}
}
