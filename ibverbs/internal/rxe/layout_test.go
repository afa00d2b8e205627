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

// elementBytes is all of an element of a ring.
func elementBytes(v *view, i uint32) []byte {
	return unsafe.Slice((*byte)(v.at(i)), 1<<v.shift)
}
