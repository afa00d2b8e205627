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
	zeroBased    = 1 << 5
	onDemand     = 1 << 6
	hugeTLB      = 1 << 7
)

// mr is registered memory: iova is what entries call the address addr.
type mr struct {
	c                  *context
	pd                 *pd
	key                uint32
	iova, addr, length uint64
	access             uint32
	file               exported // of a dma-buf, whose addresses count from 0; nil for the program's memory
}

func (c *call) regMR(request []byte) ([]byte, error) {
	r := structOf[uapi.RegMR](request)
	p, err := object[*pd](c.context, uint64(r.PDHandle))
	if err != nil {
		return nil, err
	}
	access, err := rights(r.AccessFlags)
	switch {
	case err != nil:
		return nil, err
	case r.Start%pageSize != r.HCAVA%pageSize, r.Length == 0:
		return nil, syscall.EINVAL
	case !c.pins(r.Start, r.Length, access):
		return nil, syscall.EFAULT
	}
	m := &mr{c: c.context, pd: p, iova: r.HCAVA, addr: r.Start, length: r.Length, access: access}
	m.key = c.m.number() << 8
	c.m.mrs[m.key] = m
	p.used++
	resp := uapi.RegMRResp{MRHandle: c.add(m), LKey: m.key, RKey: m.key}
	return bytesOf(&resp), nil
}

// rights is access flags without those that a device may ignore, and those that say how
// the program uses the memory.
func rights(flags uint32) (uint32, error) {
	access := flags &^ (uapi.AccessOptionalLast<<1 - uapi.AccessOptionalFirst)
	switch {
	case access&(remoteWrite|remoteAtomic) != 0 && access&localWrite == 0, access&^(hugeTLB<<1-1) != 0:
		return 0, syscall.EINVAL
	case access&onDemand != 0:
		return 0, syscall.EOPNOTSUPP // EINVAL before Linux 6.2
	}
	return access &^ (zeroBased | hugeTLB), nil
}

// pins says whether memory can be registered with rights.
func (c *call) pins(at, n uint64, access uint32) bool {
	return c.mem.allows(at, n, access&(localWrite|remoteWrite|remoteAtomic|mwBind) != 0)
}

// keepsKey is the rights that change without a new key.
const keepsKey = localWrite | remoteWrite | remoteRead

// reregMR changes a registration in place where the kernel can, which is as long as it
// becomes no larger and no other rights change: otherwise its keys are new. A refusal
// changes nothing.
func (c *call) reregMR(request []byte) ([]byte, error) {
	r := structOf[uapi.ReregMR](request)
	moves := r.Flags&uapi.ReregTranslation != 0
	switch {
	case r.Flags == 0:
		return nil, syscall.EINVAL
	case r.Flags&^(uapi.ReregTranslation|uapi.ReregPD|uapi.ReregAccess) != 0:
		return nil, syscall.EOPNOTSUPP
	case moves && r.Start%pageSize != r.HCAVA%pageSize:
		return nil, syscall.EINVAL
	}
	m, err := object[*mr](c.context, uint64(r.MRHandle))
	if err != nil {
		return nil, err
	}
	now := *m
	if r.Flags&uapi.ReregAccess != 0 {
		if now.access, err = rights(r.AccessFlags); err != nil {
			return nil, err
		}
	}
	if r.Flags&uapi.ReregPD != 0 {
		if now.pd, err = object[*pd](c.context, uint64(r.PDHandle)); err != nil {
			return nil, err
		}
	}
	if moves {
		now.iova, now.addr, now.length = r.HCAVA, r.Start, r.Length
		if now.length == 0 {
			return nil, syscall.EINVAL
		}
	}
	switch {
	case m.file != nil && (moves || (now.access^m.access)&^keepsKey != 0):
		return nil, syscall.EOPNOTSUPP // Linux makes another registration, of the program's memory
	case m.file == nil && !c.pins(now.addr, now.length, now.access):
		return nil, syscall.EFAULT
	}
	if (now.access^m.access)&^keepsKey != 0 || now.length > m.length {
		now.key = c.m.number() << 8
	}
	m.pd.used--
	now.pd.used++
	delete(c.m.mrs, m.key)
	*m = now
	c.m.mrs[m.key] = m
	resp := uapi.ReregMRResp{LKey: m.key, RKey: m.key}
	return bytesOf(&resp), nil
}

func (c *call) destroyMR() error {
	h := c.number(uapi.AttrDestroyMRHandle)
	m, err := object[*mr](c.context, h)
	if err != nil {
		return err
	}
	m.pd.used--
	m.gone()
	delete(c.objects, uint32(h))
	return nil
}

// reach is the memory and the address that n bytes at an iova are, if a key of p
// allows it.
func (m *Model) reach(p *pd, key uint32, iova, n uint64, access uint32) (storage, uint64, bool) {
	r := m.mrs[key]
	if r == nil || r.pd != p || r.access&access != access || iova < r.iova || iova-r.iova > r.length || n > r.length-(iova-r.iova) {
		return nil, 0, false
	}
	return r.storage(), r.addr + (iova - r.iova), true
}
