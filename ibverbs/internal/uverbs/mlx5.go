package uverbs

import (
	"math"

	"github.com/purerdma/purerdma/ibverbs/internal/uapi"
	"github.com/purerdma/purerdma/internal/offheap"
)

// UARHandle is a UAR of mlx5, unique as the handles of verbs are.
type UARHandle uint32

// UAR is a page of doorbell registers of mlx5. PageID is its name in other
// commands. Mem is mapped until its last Release, which comes before FreeUAR.
type UAR struct {
	Handle UARHandle
	PageID uint32
	Mem    offheap.Span
}

// AllocUAR allocates and maps a page of one of the types uapi.MLX5UARType….
func (d *Device) AllocUAR(kind int) (UAR, error) {
	f, err := d.frame(uapi.ObjectMLX5UAR, uapi.MethodMLX5UARAlloc)
	if err != nil {
		return UAR{}, err
	}
	defer d.put(f)
	handle := f.created(uapi.AttrMLX5UARAllocHandle)
	f.constant(uapi.AttrMLX5UARAllocType, uint64(kind))
	offset := f.out(uapi.AttrMLX5UARAllocMMapOffset, 8)
	length := f.out(uapi.AttrMLX5UARAllocMMapLength, 4)
	page := f.out(uapi.AttrMLX5UARAllocPageID, 4)
	if err := f.do(d.k, d.fd); err != nil {
		return UAR{}, lacks(err, "dynamic UARs of mlx5", "Linux 5.7")
	}
	h, err := f.newHandle(handle)
	if err != nil {
		return UAR{}, err
	}
	u := UAR{Handle: UARHandle(h), PageID: f.u32(page)}
	if n := f.u32(length); n < minUAR || n > math.MaxInt32 {
		err = &ResponseError{"length of a UAR", uint64(n)}
	} else {
		u.Mem, err = d.MapRing(f.u64(offset), n)
	}
	if err != nil {
		_ = d.FreeUAR(u.Handle)
		return UAR{}, err
	}
	return u, nil
}

// minUAR is the bytes of a UAR, of which a page of the processor may have several.
const minUAR = 4096

// FreeUAR gives it back. ErrBusy while an object uses it.
func (d *Device) FreeUAR(h UARHandle) error {
	return d.destroy(uapi.ObjectMLX5UAR, uapi.MethodMLX5UARDestroy, uapi.AttrMLX5UARDestroyHandle, uint32(h), 0, 0)
}
