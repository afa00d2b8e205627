package fifo

import (
	"testing"
	"unsafe"
)

// TestLayout holds the offsets of NCCL's structures.
func TestLayout(t *testing.T) {
	var (
		o4 offer4
		o8 offer8
		s  sizes
		r  record
	)
	for _, tt := range []struct {
		name      string
		got, want uintptr
	}{
		{"offer of 4 keys", unsafe.Sizeof(o4), 64},
		{"addr", unsafe.Offsetof(o4.Addr), 0},
		{"size", unsafe.Offsetof(o4.Size), 8},
		{"rkeys", unsafe.Offsetof(o4.RKeys), 16},
		{"nreqs", unsafe.Offsetof(o4.NReqs), 32},
		{"tag", unsafe.Offsetof(o4.Tag), 36},
		{"idx", unsafe.Offsetof(o4.Idx), 40},
		{"offer of 8 keys", unsafe.Sizeof(o8), 64},
		{"addr of 8", unsafe.Offsetof(o8.Addr), 0},
		{"size of 8", unsafe.Offsetof(o8.Size), 8},
		{"rkeys of 8", unsafe.Offsetof(o8.RKeys), 16},
		{"nreqs of 8", unsafe.Offsetof(o8.NReqs), 48},
		{"tag of 8", unsafe.Offsetof(o8.Tag), 52},
		{"idx of 8", unsafe.Offsetof(o8.Idx), 56},
		{"row of sizes", unsafe.Sizeof(s), 32},
		{"record", unsafe.Sizeof(r), 160},
		{"sizes of a record", unsafe.Offsetof(r.Bytes), 0},
		{"flags of a record", unsafe.Offsetof(r.Done), 32},
	} {
		if tt.got != tt.want {
			t.Errorf("%s: %d, want %d", tt.name, tt.got, tt.want)
		}
	}
	for _, tt := range []struct {
		layout                        Layout
		keys, credits, sizes, address int
	}{
		{Layout225, 4, 131072, 8192, 32},
		{Layout2297, 4, 131072, 40960, 160},
		{Layout230, 8, 131072, 40960, 160},
	} {
		if got := tt.layout.Keys(); got != tt.keys {
			t.Errorf("%v: %d keys, want %d", tt.layout, got, tt.keys)
		}
		c := newCredits(t, tt.layout)
		if got := c.Buffer().Len(); got != tt.credits {
			t.Errorf("%v: ring of offers has %d bytes, want %d", tt.layout, got, tt.credits)
		}
		if a := c.Buffer().Addr(); a%Align != 0 {
			t.Errorf("%v: ring of offers at %#x", tt.layout, a)
		}
		if got := newSizes(t, tt.layout).Buffer().Len(); got != tt.sizes {
			t.Errorf("%v: ring of sizes has %d bytes, want %d", tt.layout, got, tt.sizes)
		}
		if got := tt.layout.SizesAddr(1000, 257); got != uint64(1000+tt.address) {
			t.Errorf("%v: sizes of message 257 at %d", tt.layout, got)
		}
		if got := tt.layout.CreditAddr(4096, 511); got != 4096+255*512 {
			t.Errorf("%v: offers of message 511 at %d", tt.layout, got)
		}
	}
	if got := newSizesStaging(t).Buffer().Len(); got != 8192 {
		t.Errorf("copy of sizes has %d bytes", got)
	}
}

func TestCheckBase(t *testing.T) {
	l := Layout225
	for _, tt := range []struct {
		name  string
		check func(uint64) error
		base  uint64
		ok    bool
	}{
		{"credits", l.CheckCreditBase, 0x7f0000001000, true},
		{"credits as NCCL may place them", l.CheckCreditBase, 0x7f0000001020, true},
		{"credits nowhere", l.CheckCreditBase, 0, false},
		{"credits askew", l.CheckCreditBase, 0x7f0000001010, false},
		{"last credits that fit", l.CheckCreditBase, 1<<64 - 131072, true},
		{"credits over the end", l.CheckCreditBase, 1<<64 - 131072 + 32, false},
		{"sizes", l.CheckSizesBase, 0x7f0000001004, true},
		{"sizes askew", l.CheckSizesBase, 0x7f0000001002, false},
		{"sizes over the end", l.CheckSizesBase, 1<<64 - 8188, false},
		{"records over the end", Layout230.CheckSizesBase, 1<<64 - 8192, false},
	} {
		if err := tt.check(tt.base); (err == nil) != tt.ok {
			t.Errorf("%s at %#x: %v", tt.name, tt.base, err)
		}
	}
}

func TestNoSuchLayout(t *testing.T) {
	if _, err := NewCredits(layouts); err == nil {
		t.Error("NewCredits took it")
	}
	if _, err := NewCreditStaging(layouts); err == nil {
		t.Error("NewCreditStaging took it")
	}
	if _, err := NewSizes(layouts); err == nil {
		t.Error("NewSizes took it")
	}
}
