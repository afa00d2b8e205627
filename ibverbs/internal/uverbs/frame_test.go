package uverbs

import (
	"bytes"
	"encoding/binary"
	"syscall"
	"testing"
)

func TestFrameLimits(t *testing.T) {
	f, err := newFrame()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.mem.Release() }()
	fill := func(n int) error {
		f.begin(14, 1, 2)
		for i := range n {
			f.constant(uint16(i), uint64(i))
		}
		return f.seal()
	}
	if err := fill(maxAttrs); err != nil {
		t.Errorf("%d attributes: %v", maxAttrs, err)
	}
	if length := binary.NativeEndian.Uint16(f.b); int(length) != hdrSize+maxAttrs*attrSize || length > 4096 {
		t.Errorf("length %d", length)
	}
	if err := fill(maxAttrs + 1); err == nil {
		t.Errorf("%d attributes fit", maxAttrs+1)
	}
	if err := fill(1); err != nil {
		t.Errorf("after a refused command: %v", err)
	}
	f.begin(14, 1, 2)
	f.out(1, maxLen+1)
	if err := f.seal(); err == nil {
		t.Error("an output of 65536 bytes went through a field of 16 bits")
	}
}

// TestFrameGrows moves a command to larger memory: inputs go along, pointers
// follow, and outputs begin as zeros.
func TestFrameGrows(t *testing.T) {
	f, err := newFrame()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.mem.Release() }()
	for i := range f.b {
		f.b[i] = 0xff
	}
	f.end = len(f.b)
	f.begin(14, 1, 2)
	in := bytes.Repeat([]byte("in"), 100)
	f.in(0, in)
	small := f.out(1, 100)
	large := f.out(2, 60000)
	last := f.out(3, 9)
	for range 2 { // sealing twice must not move the pointers twice
		if err := f.seal(); err != nil {
			t.Fatal(err)
		}
	}
	at := func(i int) []byte {
		p := binary.NativeEndian.Uint64(f.b[hdrSize+i*attrSize+attrData:]) - f.mem.Addr()
		n := uint64(binary.NativeEndian.Uint16(f.b[hdrSize+i*attrSize+attrLen:]))
		return f.b[p:][:n]
	}
	if !bytes.Equal(at(0), in) {
		t.Errorf("input % x", at(0))
	}
	for i, o := range map[int]output{1: small, 2: large, 3: last} {
		if b := at(i); &b[0] != &f.bytes(o)[0] || len(b) != o.len || !bytes.Equal(b, make([]byte, o.len)) {
			t.Errorf("output %d is not what is pointed to, or not zero", i)
		}
	}
	if &f.bytes(last)[8] != &f.b[f.end-8:][0] {
		t.Errorf("the frame ends at %d", f.end)
	}
}

// probed answers the probe of Open.
type probed struct{ Kernel }

func (probed) Open(string) (int, uint64, error) { return 0, 0, nil }
func (probed) Close(int) error                  { return nil }
func (probed) Ioctl(int, []byte) error          { return syscall.ENOSPC }

func TestCloseUnmapsFrames(t *testing.T) {
	d, err := Open(probed{}, Node{})
	if err != nil {
		t.Fatal(err)
	}
	inUse, err := d.frame(0, 0)
	if err != nil {
		t.Fatal(err)
	}
	idle, err := d.frame(0, 0)
	if err != nil {
		t.Fatal(err)
	}
	d.put(idle)
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	d.put(inUse)
	for name, f := range map[string]*frame{"idle": idle, "in use": inUse} {
		if f.mem.Retain() == nil {
			t.Errorf("the frame that was %s is still mapped", name)
		}
	}
}
