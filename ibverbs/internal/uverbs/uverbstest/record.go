package uverbstest

import (
	"fmt"
	"slices"
	"strings"

	"github.com/purerdma/purerdma/ibverbs/internal/uapi"
)

// Record is a command as it went to the kernel, in printable form. Attributes
// are sorted by id.
type Record struct {
	Method  Method
	Command uint32 // of an InvokeWrite
	Attrs   []RecordAttr
	Err     error // what the kernel answered
	Write   bool  // it went by write(2)
}

// RecordAttr is an attribute of a Record. Value is its input bytes; handles,
// descriptors and outputs have none.
type RecordAttr struct {
	ID, Len, Flags uint16
	Kind           Kind
	Value          []byte
}

// RecordOf is what is to be seen of a call before it ran.
func RecordOf(c *Call) Record {
	r := Record{Method: c.Method}
	if c.Method == InvokeWrite {
		r.Command = c.Command()
	}
	for _, a := range c.Attrs {
		ra := RecordAttr{ID: a.ID, Len: a.Len, Flags: a.Flags, Kind: a.Kind}
		switch a.Kind {
		case In:
			ra.Value = slices.Clone(a.In)
		case Const:
			ra.Value = slices.Clone(c.frame[a.at+attrData : a.at+attrSize])
		}
		r.Attrs = append(r.Attrs, ra)
	}
	r.Sort()
	return r
}

// Sort orders the attributes by id: the kernel does not mind their order.
func (r *Record) Sort() {
	slices.SortFunc(r.Attrs, func(a, b RecordAttr) int { return int(a.ID) - int(b.ID) })
}

// Name is the method, and the command of an InvokeWrite.
func (r *Record) Name() string {
	if r.Method == InvokeWrite {
		return r.Method.String() + " " + commandName(r.Command)
	}
	return r.Method.String()
}

// String is the name on one line and each attribute on one.
func (r Record) String() string {
	var b strings.Builder
	b.WriteString(r.Name())
	if r.Write {
		b.WriteString(" by write(2)")
	}
	if r.Err != nil {
		fmt.Fprintf(&b, ": %v", r.Err)
	}
	for _, a := range r.Attrs {
		b.WriteString("\n\t" + r.Method.attrString(a))
	}
	return b.String()
}

func (m Method) attrString(a RecordAttr) string {
	spec, ok := m.attr(a.ID)
	if !ok {
		spec.name = fmt.Sprintf("attribute %d", a.ID)
	}
	s := fmt.Sprintf("%s len %d", spec.name, a.Len)
	if a.Flags&uapi.AttrFMandatory == 0 {
		s += " optional"
	}
	if a.Value != nil {
		s += fmt.Sprintf(" % x", a.Value)
	}
	return s
}
