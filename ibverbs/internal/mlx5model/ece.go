package mlx5model

import (
	"syscall"

	"github.com/purerdma/purerdma/ibverbs/internal/uapi"
)

// eceOptions is what the adapter offers of enhanced connection establishment. Which bits
// firmware has is not known; the highest is the version that programs ask for.
const eceOptions = 1<<28 | 1<<1

// modifyQPWith answers the extended MODIFY_QP, by which two ends agree on options.
func (c *call) modifyQPWith(request []byte) ([]byte, error) {
	b, err := c.in(uapi.AttrUHWIn)
	if err != nil {
		return nil, err
	}
	own := structOf[uapi.MLX5ModifyQP](b)
	size := len(bytesOf(&own))
	switch {
	case structOf[uapi.ModifyQP](request).AttrMask&^(rateLimit<<1-1) != 0:
		return nil, syscall.EOPNOTSUPP
	case len(b) == 0:
	case len(b) < size:
		return nil, syscall.EINVAL
	case own.CompMask != 0, own.Reserved != 0, !zero(b[size:]):
		return nil, syscall.EOPNOTSUPP
	}
	if _, err := c.modifyQP(request); err != nil {
		return nil, err
	}
	resp := uapi.MLX5ModifyQPResp{ECEOptions: own.ECEOptions & eceOptions}
	resp.ResponseLength = uint32(len(bytesOf(&resp)))
	if c.room(uapi.AttrUHWOut) >= len(bytesOf(&resp)) {
		if err := c.out(uapi.AttrUHWOut, bytesOf(&resp)); err != nil {
			return nil, err
		}
	}
	done := uapi.ExModifyQPResp{}
	done.ResponseLength = uint32(min(c.room(uapi.AttrCoreOut), len(bytesOf(&done))))
	return bytesOf(&done), nil
}

// rateLimit is the highest bit of an attribute mask (IB_QP_RATE_LIMIT).
const rateLimit = 1 << 25

func zero(b []byte) bool {
	for _, v := range b {
		if v != 0 {
			return false
		}
	}
	return true
}

// offered is the options that a new queue pair may use, if its program knows of any.
func offered(asked uint32) uint32 {
	if asked == 0 {
		return 0
	}
	return eceOptions
}
