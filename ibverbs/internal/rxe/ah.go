package rxe

import (
	"encoding/binary"
	"sync/atomic"

	"github.com/purerdma/purerdma/ibverbs/driver"
	"github.com/purerdma/purerdma/ibverbs/internal/uverbs"
)

// AH is an address handle. The kernel keeps the address, datagrams name it by a
// number. It implements driver.AH.
type AH struct {
	pd  *PD
	h   uverbs.AHHandle
	num atomic.Uint32 // 0 once it is closed
}

// CreateAH implements driver.PD. The kernel resolves the peer's address.
func (p *PD) CreateAH(a driver.AHAttr) (driver.AH, error) {
	if err := p.dev.checkAV(&a); err != nil {
		return nil, err
	}
	var resp [8]byte // struct rxe_create_ah_resp
	h, err := p.dev.Dev.CreateAH(p.h, &a, uverbs.UHW{Out: resp[:]})
	if err != nil {
		return nil, p.dev.explainAV(err, &a)
	}
	num := binary.NativeEndian.Uint32(resp[:])
	if num == 0 {
		_ = p.dev.Dev.DestroyAH(h)
		return nil, noAHNumber
	}
	ah := &AH{pd: p, h: h}
	ah.num.Store(num)
	return ah, nil
}

// noAHNumber is of a kernel that wants the whole address in each datagram.
var noAHNumber = &driver.NotSupportedError{Feature: driver.FeatureAH, By: driver.LacksKernel, Since: "Linux 5.17"}

// Close implements driver.AH.
func (h *AH) Close() error {
	h.num.Store(0)
	return h.pd.dev.Dev.DestroyAH(h.h)
}
