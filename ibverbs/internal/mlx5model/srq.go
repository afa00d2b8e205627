package mlx5model

import (
	"math/bits"
	"syscall"

	"github.com/purerdma/purerdma/ibverbs/internal/uapi"
	"github.com/purerdma/purerdma/internal/mlx5prm"
)

// srq is a shared receive queue: a list of entries, each of which names the next.
type srq struct {
	c        *context
	num      uint32
	pd       *pd
	user     uint64
	async    eventFile
	buf, db  uint64
	n, shift uint32
	maxSGE   uint32
	limit    uint32
	used     int
	next     uint16 // the entry that is taken next
	taken    uint16 // how many were
}

func (c *call) createSRQ() error {
	b, err := c.in(uapi.AttrUHWIn)
	if err != nil {
		return err
	}
	req := structOf[uapi.MLX5CreateSRQ](b)
	p, err := object[*pd](c.context, c.number(uapi.AttrCreateSRQPDHandle))
	if err != nil {
		return err
	}
	wr, sge := uint32(c.number(uapi.AttrCreateSRQMaxWR)), uint32(c.number(uapi.AttrCreateSRQMaxSGE))
	if c.number(uapi.AttrCreateSRQType) != uapi.SRQTBasic {
		return syscall.EOPNOTSUPP
	}
	if wr > maxSRQWR || sge > maxSRQSGE || req.Flags != 0 || req.Reserved0 != 0 || req.Reserved1 != 0 {
		return syscall.EINVAL
	}
	q := &srq{c: c.context, num: c.m.number(), pd: p, user: c.number(uapi.AttrCreateSRQUserHandle), buf: req.BufAddr, db: req.DBAddr,
		n: 1 << bits.Len32(wr), shift: uint32(max(5, bits.Len32((sge+1)*mlx5prm.DSUnit-1))), limit: uint32(c.number(uapi.AttrCreateSRQLimit))}
	if q.async, err = c.asyncFile(uapi.AttrCreateSRQEventFD); err != nil {
		return err
	}
	q.maxSGE = 1<<q.shift/mlx5prm.DSUnit - 1
	if !c.mem.allows(q.buf, uint64(q.n)<<q.shift, true) || !c.mem.allows(q.db, 4, true) {
		return syscall.EFAULT
	}
	p.used++
	resp := uapi.MLX5CreateSRQResp{SRQN: q.num}
	if err := c.outs(map[uint16][]byte{uapi.AttrCreateSRQRespMaxWR: u32(q.n - 1), uapi.AttrCreateSRQRespMaxSGE: u32(sge), uapi.AttrUHWOut: bytesOf(&resp)}); err != nil {
		return err
	}
	return c.made(uapi.AttrCreateSRQHandle, c.add(q))
}

func (c *call) destroySRQ() error {
	h := c.number(uapi.AttrDestroySRQHandle)
	q, err := object[*srq](c.context, h)
	if err != nil {
		return err
	}
	if q.used != 0 {
		return syscall.EBUSY
	}
	q.pd.used--
	delete(c.objects, uint32(h))
	return c.out(uapi.AttrDestroySRQResp, u32(c.forget(q.async, q.user)))
}

func (c *call) modifySRQ(request []byte) ([]byte, error) {
	r := structOf[uapi.ModifySRQ](request)
	q, err := object[*srq](c.context, uint64(r.SRQHandle))
	switch {
	case err != nil:
		return nil, err
	case r.AttrMask != uapi.SRQLimit, r.SRQLimit >= q.n:
		return nil, syscall.EINVAL
	}
	q.limit = r.SRQLimit
	return nil, nil
}

func (c *call) querySRQ(request []byte) ([]byte, error) {
	r := structOf[uapi.QuerySRQ](request)
	q, err := object[*srq](c.context, uint64(r.SRQHandle))
	if err != nil {
		return nil, err
	}
	resp := uapi.QuerySRQResp{MaxWR: q.n - 1, MaxSGE: q.maxSGE, SRQLimit: q.limit}
	return bytesOf(&resp), nil
}
