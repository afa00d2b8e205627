package mlx5model

import (
	"encoding/binary"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/purerdma/purerdma/ibverbs/internal/uapi"
)

// tracef tells what a program does, with names in place of what differs between two
// runs: addresses, handles, keys and numbers.
func (m *Model) tracef(format string, args ...any) {
	if m.config.Trace != nil {
		m.config.Trace(fmt.Sprintf(format, args...))
	}
}

// named is a part of a structure that a trace has a name for. It has eight bytes if it
// is an address, else four.
type named struct {
	at   int
	what string
}

const (
	anAddress = "address"
	aHandle   = "handle"
	aNumber   = "number"   // of a queue pair
	aPage     = "page"     // of doorbells
	aResponse = "response" // address of the write interface's, which the ioctl passes over
)

// ofDriver behind the name of a command is its input of the driver's own.
const ofDriver = " of the driver"

// structures are the inputs with parts that have names, by command or method.
var structures = map[string][]named{
	"ALLOC_PD":            {{0, aResponse}},
	"CREATE_COMP_CHANNEL": {{0, aResponse}},
	"CREATE_AH":           {{0, aResponse}, {8, anAddress}, {16, aHandle}},
	"REG_MR":              {{0, aResponse}, {8, anAddress}, {24, anAddress}, {32, aHandle}},
	"QUERY_QP":            {{0, aResponse}, {8, aHandle}},
	"QUERY_DEVICE":        {{0, aResponse}},
	"REREG_MR":            {{0, aResponse}, {8, aHandle}, {16, anAddress}, {32, anAddress}, {40, aHandle}},
	"ALLOC_MW":            {{0, aResponse}, {8, aHandle}},
	"RESIZE_CQ":           {{0, aResponse}, {8, aHandle}},
	"EX_MODIFY_CQ":        {{0, aHandle}},
	"MODIFY_QP":           {{64, aHandle}, {84, aNumber}},
	"MODIFY_SRQ":          {{0, aHandle}},
	"QUERY_SRQ":           {{0, aResponse}, {8, aHandle}},
	"CQ_CREATE":           {{0, anAddress}, {8, anAddress}, {24, aPage}},
	"QP_CREATE":           {{0, anAddress}, {8, anAddress}, {36, aPage}, {40, anAddress}},
	"SRQ_CREATE":          {{0, anAddress}, {8, anAddress}},

	"RESIZE_CQ" + ofDriver: {{0, anAddress}},
}

// userHandles are the attributes by which a program knows its own objects.
var userHandles = map[string]uint16{
	"CQ_CREATE": uapi.AttrCreateCQUserHandle, "QP_CREATE": uapi.AttrCreateQPUserHandle, "SRQ_CREATE": uapi.AttrCreateSRQUserHandle,
}

// trace tells of an ioctl, in a line for it and one for each attribute.
func (c *call) trace(m method) {
	if c.m.config.Trace == nil {
		return
	}
	name := m.name
	driver := name
	if name == invokeWrite {
		number := uint32(c.number(uapi.AttrWriteCmd))
		if name = commands[number].name; name == "" {
			name = fmt.Sprintf("command %#x", number)
		}
		driver = name + ofDriver
	}
	c.m.tracef("%s", name)
	for _, id := range slices.Sorted(maps.Keys(c.attrs)) {
		a := m.attrs[id]
		structure := name
		if id == uapi.AttrUHWIn {
			structure = driver
		}
		c.m.tracef("%s attribute %#x flags %#x: %s", name, id, c.attrs[id].Flags, c.value(structure, id, a.kind))
	}
}

// value is what a trace says of an attribute.
func (c *call) value(name string, id uint16, k kind) string {
	switch user, ok := userHandles[name]; {
	case ok && id == user:
		return "the program's"
	case k == handle:
		return c.nameOf(uint32(c.number(id)))
	case k == newHandle, k == file, k == newFile:
		return "given"
	case k == constant:
		return fmt.Sprintf("%#x", c.number(id))
	case k == out:
		return fmt.Sprintf("room for %d bytes", c.room(id))
	}
	b, err := c.in(id)
	if err != nil {
		return err.Error()
	}
	if id == uapi.AttrUHWIn || id == uapi.AttrCoreIn {
		return c.structure(b, structures[name])
	}
	return c.structure(b, nil)
}

// structure is the words of a structure, in the order of their bytes.
func (c *call) structure(b []byte, parts []named) string {
	var words []string
	for at := 0; at < len(b); {
		i := slices.IndexFunc(parts, func(p named) bool { return p.at == at })
		size := 4
		if i >= 0 && (parts[i].what == anAddress || parts[i].what == aResponse) {
			size = 8
		}
		if len(b)-at < size {
			words = append(words, fmt.Sprintf("%x", b[at:]))
			break
		}
		text := fmt.Sprintf("%x", b[at:at+size])
		if i >= 0 && (parts[i].what == aResponse || strings.Trim(text, "0") != "") {
			text = c.partOf(parts[i].what, b[at:])
		}
		words = append(words, text)
		at += size
	}
	return fmt.Sprintf("%d bytes: %s", len(b), strings.Join(words, " "))
}

func (c *call) partOf(what string, b []byte) string {
	v := binary.NativeEndian.Uint32(b)
	switch {
	case what == aHandle:
		return c.nameOf(v)
	case what == aNumber && c.m.qps[v] == nil, what == aPage && c.uars[v] == nil:
		return fmt.Sprintf("no such %s", what)
	}
	return what
}

// nameOf is the kind of an object and its place among the program's of that kind.
func (c *context) nameOf(h uint32) string {
	o := c.objects[h]
	if o == nil {
		return "no object"
	}
	place := 0
	for other, p := range c.objects {
		if other < h && reflect.TypeOf(p) == reflect.TypeOf(o) {
			place++
		}
	}
	return fmt.Sprintf("%s %d", reflect.TypeOf(o).Elem().Name(), place)
}

// nameOfObject is nameOf by the object.
func (c *context) nameOfObject(o any) string {
	for h, p := range c.objects {
		if p == o {
			return c.nameOf(h)
		}
	}
	return c.nameOf(0)
}
