package softroce

import (
	"errors"
	"math"
	"os"
	"syscall"

	"github.com/purerdma/purerdma/ibverbs/driver"
	"github.com/purerdma/purerdma/internal/offheap"
)

// RegDMABuf maps the buffer into this process, since it is the processor that
// reads and writes it here. Memory files can be mapped, and the buffers of some
// devices; those of others, NVIDIA's GPUs for one, cannot.
func (p *pd) RegDMABuf(b driver.DMABuf, a driver.Access) (driver.MR, error) {
	page := uint64(os.Getpagesize())
	inPage := b.Offset & (page - 1)
	switch {
	case b.FD < 0:
		return nil, syscall.EBADF
	case b.Length == 0, b.Length > maxMRSize, b.Offset > math.MaxInt64-b.Length, (b.Offset^b.IOVA)&(page-1) != 0:
		return nil, syscall.EINVAL
	}
	whole, err := offheap.MapFile(b.FD, int64(b.Offset-inPage), int(inPage+b.Length))
	if err != nil {
		if errors.Is(err, syscall.EBADF) || errors.Is(err, syscall.EINVAL) {
			return nil, err
		}
		return nil, &driver.NotSupportedError{Feature: driver.FeatureDMABuf, By: driver.LacksDevice, Err: err}
	}
	defer func() { _ = whole.Release() }() // the registration holds it
	part, err := whole.Slice(int(inPage), int(b.Length))
	if err != nil {
		return nil, err
	}
	return p.RegMR(part, b.IOVA, a)
}
