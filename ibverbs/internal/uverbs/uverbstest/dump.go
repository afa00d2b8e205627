package uverbstest

import (
	"bufio"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"io"
	"strconv"
	"strings"
	"syscall"

	"github.com/purerdma/purerdma/ibverbs/internal/uapi"
)

// ReadDump reads what testdata/rdmacore/dump.c writes: the commands of a C
// program. One that went by write(2) becomes the InvokeWrite that does the same.
func ReadDump(r io.Reader) ([]Record, error) {
	var records []Record
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, 1<<20)
	for n := 1; lines.Scan(); n++ {
		fields := strings.Fields(lines.Text())
		var err error
		switch {
		case len(fields) == 5 && fields[0] == "ioctl":
			var v [4]uint64
			v, err = numbers(fields[1:])
			records = append(records, Record{Method: Method{uint16(v[0]), uint16(v[1])}, Err: errnoOf(v[3])})
		case len(fields) == 6 && fields[0] == "attr" && len(records) > 0:
			err = records[len(records)-1].addDumped(fields[1:])
		case len(fields) == 3 && fields[0] == "write":
			var rec Record
			rec, err = dumpedWrite(fields[1:])
			records = append(records, rec)
		default:
			err = fmt.Errorf("%q is no line of a dump", lines.Text())
		}
		if err != nil {
			return nil, fmt.Errorf("line %d: %w", n, err)
		}
	}
	for i := range records {
		records[i].Sort()
	}
	return records, lines.Err()
}

func numbers(fields []string) (v [4]uint64, err error) {
	for i := range v {
		if v[i], err = strconv.ParseUint(fields[i], 16, 64); err != nil {
			return v, err
		}
	}
	return v, nil
}

func errnoOf(v uint64) error {
	if v == 0 {
		return nil
	}
	return syscall.Errno(v)
}

// addDumped adds an attribute: id, length, flags, data and the bytes pointed to.
func (r *Record) addDumped(fields []string) error {
	v, err := numbers(fields)
	if err != nil {
		return err
	}
	a := RecordAttr{ID: uint16(v[0]), Len: uint16(v[1]), Flags: uint16(v[2])}
	spec, ok := r.Method.attr(a.ID)
	if !ok {
		return fmt.Errorf("%v has no attribute %d here", r.Method, a.ID)
	}
	a.Kind = spec.kind
	data := binary.NativeEndian.AppendUint64(nil, v[3])
	switch {
	case a.Kind == Const:
		a.Value = data
		if r.Method == InvokeWrite && a.ID == uapi.AttrWriteCmd {
			r.Command = uint32(v[3])
		}
	case a.Kind == In && a.Len <= uapi.InlineMax:
		a.Value = data[:a.Len]
	case a.Kind == In:
		if a.Value, err = hex.DecodeString(fields[4]); err == nil && len(a.Value) != int(a.Len) {
			err = fmt.Errorf("%d bytes in an attribute of %d", len(a.Value), a.Len)
		}
	}
	r.Attrs = append(r.Attrs, a)
	return err
}

// dumpedWrite reads struct ib_uverbs_cmd_hdr and what follows it: the command,
// and the lengths of request and response in words of four bytes.
func dumpedWrite(fields []string) (Record, error) {
	errno, err := strconv.ParseUint(fields[0], 16, 32)
	if err != nil {
		return Record{}, err
	}
	b, err := hex.DecodeString(fields[1])
	if err != nil {
		return Record{}, err
	}
	if len(b) < 8 || len(b) != 4*int(binary.NativeEndian.Uint16(b[4:])) {
		return Record{}, fmt.Errorf("a write of %d bytes is no command", len(b))
	}
	cmd := binary.NativeEndian.Uint32(b)
	r := Record{Method: InvokeWrite, Command: cmd, Err: errnoOf(errno), Write: true, Attrs: []RecordAttr{
		{ID: uapi.AttrCoreIn, Len: uint16(len(b) - 8), Flags: uapi.AttrFMandatory, Kind: In, Value: b[8:]},
		{ID: uapi.AttrWriteCmd, Len: 8, Flags: uapi.AttrFMandatory, Kind: Const, Value: binary.NativeEndian.AppendUint64(nil, uint64(cmd))}}}
	if out := 4 * binary.NativeEndian.Uint16(b[6:]); out > 0 {
		r.Attrs = append(r.Attrs, RecordAttr{ID: uapi.AttrCoreOut, Len: out, Flags: uapi.AttrFMandatory, Kind: Out})
	}
	return r, nil
}
