package gdr

import (
	"unsafe"

	"github.com/purerdma/purerdma/gpu"
	"github.com/purerdma/purerdma/ibverbs"
	"github.com/purerdma/purerdma/mr"
)

// byAddress registers the GPU's addresses as they are: the kernel's module knows
// them. They are never read or written here.
func (r *Registrar) byAddress(p gpu.Ptr, n int, a ibverbs.Access) (*Memory, error) {
	addr := uintptr(p)
	buf, err := mr.Foreign(*(*unsafe.Pointer)(unsafe.Pointer(&addr)), n, func() error { return nil })
	if err != nil {
		return nil, r.fail(p, n, err)
	}
	reg, err := relaxed(a, func(a ibverbs.Access) (*ibverbs.MR, error) { return r.pd.RegMR(buf, a) })
	closed := buf.Close() // the registration holds it
	if err != nil {
		return nil, r.fail(p, n, err)
	}
	return &Memory{p: p, n: n, access: a, pieces: []*ibverbs.MR{reg}}, closed
}
