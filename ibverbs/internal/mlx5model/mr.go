package mlx5model

import (
	"syscall"

	"github.com/purerdma/purerdma/ibverbs/internal/uapi"
)

// Access flags (enum ib_access_flags), of registrations and queue pairs.
const (
	localWrite   = 1 << 0
	remoteWrite  = 1 << 1
	remoteRead   = 1 << 2
	remoteAtomic = 1 << 3
	mwBind       = 1 << 4
)

// mr is registered memory: iova is what entries call the address addr.
type mr struct {
	c                  *context
	pd                 *pd
	key                uint32
	iova, addr, length uint64
	access             uint32
}

func (c *call) regMR(request []byte) ([]byte, error) {
	r := structOf[uapi.RegMR](request)
	p, err := object[*pd](c.context, uint64(r.PDHandle))
	if err != nil {
		return nil, err
	}
	access := r.AccessFlags &^ (uapi.AccessOptionalLast<<1 - uapi.AccessOptionalFirst)
	switch {
	case r.Start%pageSize != r.HCAVA%pageSize, access&^0x1f != 0, r.Length == 0:
		return nil, syscall.EINVAL
	case access&(remoteWrite|remoteAtomic) != 0 && access&localWrite == 0:
		return nil, syscall.EINVAL
	case !c.mem.allows(r.Start, r.Length, access&(localWrite|remoteWrite|remoteAtomic|mwBind) != 0):
		return nil, syscall.EFAULT
	}
	m := &mr{c: c.context, pd: p, iova: r.HCAVA, addr: r.Start, length: r.Length, access: access}
	m.key = c.m.number() << 8
	c.m.mrs[m.key] = m
	p.used++
	resp := uapi.RegMRResp{MRHandle: c.add(m), LKey: m.key, RKey: m.key}
	return bytesOf(&resp), nil
}

func (c *call) destroyMR() error {
	h := c.number(uapi.AttrDestroyMRHandle)
	m, err := object[*mr](c.context, h)
	if err != nil {
		return err
	}
	m.pd.used--
	delete(c.m.mrs, m.key)
	delete(c.objects, uint32(h))
	return nil
}

// reach is the memory and the address that n bytes at an iova are, if a key of p
// allows it.
func (m *Model) reach(p *pd, key uint32, iova, n uint64, access uint32) (memory, uint64, bool) {
	r := m.mrs[key]
	if r == nil || r.pd != p || r.access&access != access || iova < r.iova || iova-r.iova > r.length || n > r.length-(iova-r.iova) {
		return nil, 0, false
	}
	return r.c.mem, r.addr + (iova - r.iova), true
}
