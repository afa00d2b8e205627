package mlx5model

import (
	"encoding/binary"
	"math/bits"
	"syscall"

	"github.com/purerdma/purerdma/ibverbs/internal/uapi"
	"github.com/purerdma/purerdma/internal/mlx5prm"
)

// resizeCQ moves a CQ into another ring: the adapter marks in the old one where it left
// it, and goes on in the new one at the place behind. The program moves what it has not
// polled, so that a ring with less room than that is refused.
func (c *call) resizeCQ(request []byte) ([]byte, error) {
	r := structOf[uapi.ResizeCQ](request)
	b, err := c.in(uapi.AttrUHWIn)
	if err != nil {
		return nil, err
	}
	q, err := object[*cq](c.context, uint64(r.CQHandle))
	if err != nil {
		return nil, err
	}
	if r.CQE == 0 || r.CQE > maxCQE {
		return nil, syscall.EINVAL
	}
	n := uint32(1) << bits.Len32(r.CQE)
	resp := uapi.ResizeCQResp{CQE: n - 1}
	if n == q.n {
		return bytesOf(&resp), nil
	}
	req := structOf[uapi.MLX5ResizeCQ](b)
	switch {
	case len(b) < len(bytesOf(&req)), req.Reserved0 != 0, req.Reserved1 != 0:
		return nil, syscall.EINVAL
	case uint32(req.CQESize) != q.stride:
		c.m.logf("CQ %#x: entries of %d bytes cannot become such of %d", q.num, q.stride, req.CQESize)
		return nil, syscall.EINVAL
	case !c.mem.allows(req.BufAddr, uint64(n)*uint64(q.stride), true):
		return nil, syscall.EFAULT
	}
	var record [4]byte
	if err := c.mem.read(q.db, record[:]); err != nil {
		return nil, err
	}
	q.ci = binary.BigEndian.Uint32(record[:])
	if q.overrun || (q.pi-q.ci)&mlx5prm.CIMask >= min(n, q.n) {
		return nil, syscall.EINVAL
	}
	if err := q.write(&mlx5prm.CQE{}, mlx5prm.CQEResizeCQ); err != nil {
		return nil, err
	}
	q.buf, q.n = req.BufAddr, n
	q.checkOwners()
	return bytesOf(&resp), nil
}
