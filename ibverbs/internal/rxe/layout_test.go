package rxe

import (
	"testing"
	"unsafe"

	"github.com/purerdma/purerdma/ibverbs/driver"
	"github.com/purerdma/purerdma/ibverbs/internal/uapi"
)

// Gather lists are copied from the caller's type into the ring's.
func TestSGEIsTheKernels(t *testing.T) {
	var ours driver.SGE
	var theirs uapi.RxeSGE
	if unsafe.Sizeof(ours) != unsafe.Sizeof(theirs) || unsafe.Offsetof(ours.Addr) != unsafe.Offsetof(theirs.Addr) ||
		unsafe.Offsetof(ours.Length) != unsafe.Offsetof(theirs.Length) || unsafe.Offsetof(ours.LKey) != unsafe.Offsetof(theirs.LKey) {
		t.Error("driver.SGE is not struct rxe_sge")
	}
}

// What of a completion is copied together lies together on both sides.
func TestWCIsMovedInPieces(t *testing.T) {
	var wc driver.WC
	var e uapi.WC
	for name, apart := range map[string][2]uintptr{
		"ByteLen": {unsafe.Offsetof(wc.ByteLen) - unsafe.Offsetof(wc.VendorErr), unsafe.Offsetof(e.ByteLen) - unsafe.Offsetof(e.VendorErr)},
		"SrcQP":   {unsafe.Offsetof(wc.SrcQP) - unsafe.Offsetof(wc.QPN), unsafe.Offsetof(e.SrcQP) - unsafe.Offsetof(e.QPNum)},
	} {
		if apart != [2]uintptr{4, 4} {
			t.Errorf("%s: %d", name, apart)
		}
	}
	if a, b := unsafe.Offsetof(wc.SLID)-unsafe.Offsetof(wc.PKeyIndex), unsafe.Offsetof(e.SLID)-unsafe.Offsetof(e.PKeyIndex); a != 2 || b != 2 {
		t.Errorf("SLID: %d, %d", a, b)
	}
	from := unsafe.Offsetof(wc.Status)
	if got := [3]uintptr{unsafe.Offsetof(wc.Op) - from, unsafe.Offsetof(wc.Flags) - from, unsafe.Offsetof(wc.SL) - from}; got != [3]uintptr{1, 2, 3} {
		t.Errorf("the bytes are at %d", got)
	}
}

// elementBytes is all of an element of a ring.
func elementBytes(v *view, i uint32) []byte {
	return unsafe.Slice((*byte)(v.at(i)), 1<<v.shift)
}
