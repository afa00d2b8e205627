package uverbstest

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/purerdma/purerdma/ibverbs/internal/uapi"
)

// Call is a decoded command. Outputs are written into the frame.
type Call struct {
	Method
	DriverID uint32
	Attrs    []Attr
	frame    []byte
}

// Attr is a decoded attribute.
type Attr struct {
	ID, Len, Flags uint16
	Kind           Kind
	Data           uint64 // of a Const, handle or descriptor
	In             []byte // of an In; aliases the frame
	at             int    // of the attribute in the frame
	off            int    // of the payload of an Out
}

// Sizes and offsets of the header and of an attribute.
const (
	hdrSize   = 24
	attrSize  = 16
	attrFlags = 4
	attrData  = 8
)

// ErrFrame is matched by all errors of Decode.
var ErrFrame = errors.New("malformed command")

// Decode reads a frame that lies at address base, with the checks that the
// kernel makes. A pointer outside the frame is an error.
func Decode(frame []byte, base uint64) (*Call, error) {
	bad := func(format string, args ...any) (*Call, error) {
		return nil, fmt.Errorf("%w: "+format, append([]any{ErrFrame}, args...)...)
	}
	u16 := binary.NativeEndian.Uint16
	if len(frame) < hdrSize {
		return bad("%d bytes are shorter than a header", len(frame))
	}
	length, n := int(u16(frame)), int(u16(frame[6:]))
	c := &Call{
		Method:   Method{u16(frame[2:]), u16(frame[4:])},
		DriverID: binary.NativeEndian.Uint32(frame[16:]),
		frame:    frame,
	}
	switch {
	case length > uapi.MaxFrame || length > len(frame):
		return bad("length %d", length)
	case length != hdrSize+n*attrSize:
		return bad("length %d with %d attributes", length, n)
	case binary.NativeEndian.Uint64(frame[8:]) != 0 || binary.NativeEndian.Uint32(frame[20:]) != 0:
		return bad("reserved fields are not 0")
	case methods[c.Method].attrs == nil:
		return bad("unknown method %v", c.Method)
	}
	seen := map[uint16]bool{}
	for i := range n {
		at := hdrSize + i*attrSize
		b := frame[at:]
		a := Attr{ID: u16(b), Len: u16(b[2:]), Flags: u16(b[attrFlags:]), Data: binary.NativeEndian.Uint64(b[attrData:]), at: at}
		spec, ok := c.attr(a.ID)
		switch {
		case !ok:
			return bad("%v has no attribute %d", c.Method, a.ID)
		case seen[a.ID]:
			return bad("%v has %s twice", c.Method, spec.name)
		case u16(b[6:]) != 0:
			return bad("%v %s has a reserved field that is not 0", c.Method, spec.name)
		}
		seen[a.ID] = true
		a.Kind = spec.kind
		switch a.Kind {
		case Const:
			if a.Len != 8 {
				return bad("%v %s is a constant of %d bytes", c.Method, spec.name, a.Len)
			}
		case In:
			if a.Len <= uapi.InlineMax {
				a.In = b[attrData : attrData+int(a.Len)]
				break
			}
			a.off, ok = within(frame, length, base, a.Data, a.Len)
			if !ok {
				return bad("%v %s points outside the frame", c.Method, spec.name)
			}
			a.In = frame[a.off : a.off+int(a.Len)]
		case Out:
			if a.off, ok = within(frame, length, base, a.Data, a.Len); !ok {
				return bad("%v %s points outside the frame", c.Method, spec.name)
			}
		default:
			if a.Len != 0 {
				return bad("%v %s is a handle of %d bytes", c.Method, spec.name, a.Len)
			}
		}
		c.Attrs = append(c.Attrs, a)
	}
	return c, nil
}

// within turns a pointer into an offset behind the attributes.
func within(frame []byte, from int, base, ptr uint64, n uint16) (int, bool) {
	off := ptr - base
	if ptr < base || off < uint64(from) || off > uint64(len(frame)) || uint64(n) > uint64(len(frame))-off {
		return 0, false
	}
	return int(off), true
}

// Attr is the attribute with this id, nil if the call has none.
func (c *Call) Attr(id uint16) *Attr {
	for i := range c.Attrs {
		if c.Attrs[i].ID == id {
			return &c.Attrs[i]
		}
	}
	return nil
}

// In is the bytes of an input, nil if there is none.
func (c *Call) In(id uint16) []byte {
	if a := c.Attr(id); a != nil {
		return a.In
	}
	return nil
}

// Data is the value of a constant, handle or descriptor, 0 if there is none.
func (c *Call) Data(id uint16) uint64 {
	if a := c.Attr(id); a != nil {
		return a.Data
	}
	return 0
}

// Command is the write command of an InvokeWrite.
func (c *Call) Command() uint32 { return uint32(c.Data(uapi.AttrWriteCmd)) }

// SetOut fills an output as far as it has room and marks it valid, as the
// kernel does. It reports whether the call has that output.
func (c *Call) SetOut(id uint16, v []byte) bool {
	a := c.Attr(id)
	if a == nil || a.Kind != Out {
		return false
	}
	copy(c.frame[a.off:a.off+int(a.Len)], v)
	c.valid(a)
	return true
}

// SetAddressed writes v to the address that an input of eight bytes
// holds (uverbs.UHW.Addressed). It reports whether the call has such an input.
func (c *Call) SetAddressed(id uint16, v []byte) bool {
	in := c.In(id)
	if len(in) != 8 {
		return false
	}
	off, ok := within(c.frame, hdrSize, addressOf(c.frame), binary.NativeEndian.Uint64(in), uint16(len(v)))
	if ok {
		copy(c.frame[off:], v)
	}
	return ok
}

// SetData stores a new handle or descriptor.
func (c *Call) SetData(id uint16, v uint64) bool {
	a := c.Attr(id)
	if a == nil || a.Kind != NewHandle && a.Kind != NewFile {
		return false
	}
	binary.NativeEndian.PutUint64(c.frame[a.at+attrData:], v)
	c.valid(a)
	return true
}

func (c *Call) valid(a *Attr) {
	binary.NativeEndian.PutUint16(c.frame[a.at+attrFlags:], a.Flags|uapi.AttrFValidOutput)
}
