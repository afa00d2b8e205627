package uverbstest

import (
	"bytes"
	"encoding/binary"
	"errors"
	"strings"
	"testing"

	"github.com/purerdma/purerdma/ibverbs/internal/uapi"
)

const testBase = 0x7f00_0000_0000

type testAttr struct {
	id, n, flags, reserved uint16
	data                   uint64
}

// frameOf is a frame at testBase with payload bytes behind the attributes.
func frameOf(m Method, payload int, attrs ...testAttr) []byte {
	b := make([]byte, hdrSize)
	binary.NativeEndian.PutUint16(b, uint16(hdrSize+len(attrs)*attrSize))
	binary.NativeEndian.PutUint16(b[2:], m.Object)
	binary.NativeEndian.PutUint16(b[4:], m.Method)
	binary.NativeEndian.PutUint16(b[6:], uint16(len(attrs)))
	binary.NativeEndian.PutUint32(b[16:], uapi.DriverRXE)
	for _, a := range attrs {
		for _, v := range []uint16{a.id, a.n, a.flags, a.reserved} {
			b = binary.NativeEndian.AppendUint16(b, v)
		}
		b = binary.NativeEndian.AppendUint64(b, a.data)
	}
	for i := range payload {
		b = append(b, byte(i+1))
	}
	return b
}

func goodFrame() []byte {
	const at = hdrSize + 3*attrSize
	return frameOf(InvokeWrite, 24, testAttr{uapi.AttrCoreIn, 16, 1, 0, testBase + at}, testAttr{uapi.AttrCoreOut, 8, 1, 0, testBase + at + 16},
		testAttr{uapi.AttrWriteCmd, 8, 1, 0, uapi.CmdQueryQP})
}

func TestDecode(t *testing.T) {
	c, err := Decode(goodFrame(), testBase)
	if err != nil {
		t.Fatal(err)
	}
	if c.Method != InvokeWrite || c.DriverID != uapi.DriverRXE || c.Command() != uapi.CmdQueryQP || len(c.In(uapi.AttrCoreIn)) != 16 || c.In(uapi.AttrCoreIn)[15] != 16 {
		t.Errorf("decoded %+v", c)
	}
	if !c.SetOut(uapi.AttrCoreOut, []byte("longer than the output")) || !bytes.Equal(c.frame[len(c.frame)-8:], []byte("longer t")) {
		t.Errorf("output % x", c.frame[len(c.frame)-8:])
	}
	if c.SetOut(uapi.AttrCoreIn, nil) || c.SetData(uapi.AttrCoreIn, 1) || c.SetOut(99, nil) {
		t.Error("an input was set as an output")
	}
	r := RecordOf(c)
	if got := r.String(); !strings.HasPrefix(got, "DEVICE.INVOKE_WRITE QUERY_QP\n\tCORE_IN len 16 01 02") {
		t.Errorf("record %q", got)
	}
}

func TestDecodeRefuses(t *testing.T) {
	change := func(off int, v ...byte) []byte {
		b := goodFrame()
		copy(b[off:], v)
		return b
	}
	const end = hdrSize + 3*attrSize
	for name, b := range map[string][]byte{
		"nothing":                nil,
		"half a header":          goodFrame()[:12],
		"length of the header":   change(0, hdrSize, 0),
		"length beyond":          change(0, 0xff, 0x0f),
		"length above the limit": change(0, 0xff, 0xff),
		"number of attributes":   change(6, 4),
		"reserved1":              change(8, 1),
		"reserved2":              change(20, 1),
		"object":                 change(2, 0xff),
		"method":                 change(4, 0xff),
		"unknown attribute":      change(hdrSize, 77),
		"attribute twice":        change(hdrSize, uapi.AttrCoreOut),
		"reserved of attribute":  change(hdrSize+6, 1),
		"constant of 4 bytes":    change(hdrSize+2*attrSize+2, 4),
		"pointer below":          change(hdrSize+attrData, 0, 0, 0, 0, 0, 0),
		"pointer to attributes":  change(hdrSize+attrData, end-1),
		"pointer beyond":         change(hdrSize+attrData, 0xff, 0xff),
		"input runs out":         change(hdrSize+2, 25),
		"output runs out":        change(hdrSize+attrSize+2, 9),
		"handle with length":     frameOf(PDDestroy, 0, testAttr{0, 4, 1, 0, 3}),
	} {
		if c, err := Decode(b, testBase); !errors.Is(err, ErrFrame) {
			t.Errorf("%s: %+v, %v", name, c, err)
		}
	}
}

// FuzzDecode decodes rubbish: a frame that is taken can be answered in full
// without leaving it.
func FuzzDecode(f *testing.F) {
	f.Add(goodFrame())
	f.Add(goodFrame()[:40])
	f.Add(frameOf(PDDestroy, 0, testAttr{0, 0, 1, 0, 3}))
	f.Add(frameOf(AsyncEvents, 0, testAttr{0, 0, 1, 0, 0}))
	f.Add(frameOf(QPCreate, 4, testAttr{uapi.AttrUHWIn, 4, 1, 0, 0}, testAttr{uapi.AttrUHWOut, 4, 1, 0, testBase + hdrSize + 2*attrSize}))
	f.Fuzz(func(t *testing.T, b []byte) {
		c, err := Decode(b, testBase)
		if err != nil {
			if !errors.Is(err, ErrFrame) {
				t.Fatal(err)
			}
			return
		}
		for _, a := range c.Attrs {
			if !c.SetOut(a.ID, make([]byte, 1<<16)) && a.Kind == Out {
				t.Errorf("output %d could not be set", a.ID)
			}
			c.SetData(a.ID, 1<<63)
		}
		r := RecordOf(c)
		_ = r.String()
	})
}
