package mlx5model

import (
	"encoding/binary"
	"syscall"

	"github.com/purerdma/purerdma/ibverbs/internal/uapi"
)

// kind is how an attribute carries its value.
type kind uint8

const (
	in        kind = iota + 1 // bytes to the kernel
	out                       // bytes from the kernel
	constant                  // a number, always eight bytes
	handle                    // an object
	newHandle                 // an object that is made
	file                      // a descriptor
	newFile                   // a descriptor that is made
)

// attr describes an attribute. size is the least bytes of an in or out.
type attr struct {
	kind     kind
	size     uint16
	optional bool
}

// method is one of the ioctl's.
type method struct {
	name  string
	attrs map[uint16]attr
	run   func(*call) error
}

type methodID struct{ object, method uint16 }

// call is an ioctl on its way. Its attributes are checked against the method's.
type call struct {
	*context
	attrs map[uint16]*given
}

// given is an attribute as the program gave it.
type given struct {
	uapi.Attr
	at uint64 // of the attribute
}

const (
	hdrSize  = 24
	attrSize = 16
	flagsAt  = 4
	dataAt   = 8
)

// ioctl answers RDMA_VERBS_IOCTL with a frame at an address of the program's memory,
// in the order of the kernel's checks.
func (c *context) ioctl(at uint64) error {
	c.m.mu.Lock()
	defer c.m.mu.Unlock()
	var h uapi.IoctlHdr
	if err := c.mem.read(at, bytesOf(&h)); err != nil {
		return err
	}
	switch {
	case h.Length > uapi.MaxFrame || h.Length != hdrSize+h.NumAttrs*attrSize:
		return syscall.EINVAL
	case h.Reserved1 != 0 || h.Reserved2 != 0:
		return syscall.EPROTONOSUPPORT
	case h.DriverID != uapi.DriverMLX5:
		return syscall.EINVAL
	}
	m, ok := methods[methodID{h.ObjectID, h.MethodID}]
	if !ok {
		c.m.tracef("method %d of object %#x", h.MethodID, h.ObjectID)
		c.m.logf("no method %d of object %#x", h.MethodID, h.ObjectID)
		return syscall.EPROTONOSUPPORT
	}
	k := &call{c, map[uint16]*given{}}
	frame := make([]byte, int(h.NumAttrs)*attrSize)
	if err := c.mem.read(at+hdrSize, frame); err != nil {
		return err
	}
	for off := 0; off < len(frame); off += attrSize {
		g := &given{structOf[uapi.Attr](frame[off:]), at + hdrSize + uint64(off)}
		if err := k.take(m, g); err != nil {
			return err
		}
	}
	k.trace(m)
	for id, a := range m.attrs {
		if !a.optional && k.attrs[id] == nil {
			c.m.logf("%s without its attribute %d", m.name, id)
			return syscall.EINVAL
		}
	}
	if !c.ready && m.name != getContext && m.name != invokeWrite {
		return syscall.EINVAL
	}
	return m.run(k)
}

// take adds an attribute of the program.
func (c *call) take(m method, g *given) error {
	a, ok := m.attrs[g.AttrID]
	switch {
	case !ok && g.Flags&uapi.AttrFMandatory != 0:
		c.m.logf("%s has no attribute %d", m.name, g.AttrID)
		return syscall.EPROTONOSUPPORT
	case !ok:
		return nil
	case c.attrs[g.AttrID] != nil, g.Reserved != 0:
		return syscall.EINVAL
	}
	switch a.kind {
	case in, out:
		if g.Len < a.size {
			return syscall.EINVAL
		}
	case constant:
		if g.Len != 8 {
			return syscall.EINVAL
		}
	default:
		if g.Len != 0 {
			return syscall.EINVAL
		}
	}
	c.attrs[g.AttrID] = g
	return nil
}

// in is the bytes of an input, nil if there is none.
func (c *call) in(id uint16) ([]byte, error) {
	g := c.attrs[id]
	if g == nil {
		return nil, nil
	}
	b := make([]byte, g.Len)
	if g.Len <= uapi.InlineMax {
		copy(b, bytesOf(&g.Data))
		return b, nil
	}
	return b, c.mem.read(g.Data, b)
}

// number is an input of up to eight bytes, a constant or a handle; 0 if there is none.
func (c *call) number(id uint16) uint64 {
	g := c.attrs[id]
	if g == nil {
		return 0
	}
	b := [8]byte{}
	copy(b[:], bytesOf(&g.Data))
	if g.Len > 0 && g.Len < 8 {
		clear(b[g.Len:])
	}
	return binary.NativeEndian.Uint64(b[:])
}

// room is the bytes that an output has.
func (c *call) room(id uint16) int {
	if g := c.attrs[id]; g != nil {
		return int(g.Len)
	}
	return 0
}

// out fills an output as far as it has room, with zeros behind v, and marks it valid.
func (c *call) out(id uint16, v []byte) error {
	g := c.attrs[id]
	if g == nil {
		return nil
	}
	b := make([]byte, g.Len)
	copy(b, v)
	if err := c.mem.write(g.Data, b); err != nil {
		return err
	}
	return c.valid(g)
}

// outs fills several outputs, and undoes an object if that fails.
func (c *call) outs(values map[uint16][]byte) error {
	for id, v := range values {
		if err := c.out(id, v); err != nil {
			return err
		}
	}
	return nil
}

// made stores the handle of a new object.
func (c *call) made(id uint16, h uint32) error {
	g := c.attrs[id]
	b := binary.NativeEndian.AppendUint64(nil, uint64(h))
	if err := c.mem.write(g.at+dataAt, b); err != nil {
		delete(c.objects, h)
		return err
	}
	return c.valid(g)
}

func (c *call) valid(g *given) error {
	return c.mem.write(g.at+flagsAt, binary.NativeEndian.AppendUint16(nil, g.Flags|uapi.AttrFValidOutput))
}

func u32(v uint32) []byte { return binary.NativeEndian.AppendUint32(nil, v) }
func u64(v uint64) []byte { return binary.NativeEndian.AppendUint64(nil, v) }
