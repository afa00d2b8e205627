package mlx5model

import (
	"syscall"

	"github.com/purerdma/purerdma/ibverbs/internal/uapi"
)

// ah is an address handle. Entries carry addresses themselves: the kernel only says which
// MAC an address of RoCE has.
type ah struct{ pd *pd }

func (c *call) createAH(request []byte) ([]byte, error) {
	r := structOf[uapi.CreateAH](request)
	p, err := object[*pd](c.context, uint64(r.PDHandle))
	if err != nil {
		return nil, err
	}
	g := &r.Attr.GRH
	switch {
	case !c.m.config.Ethernet:
		return nil, syscall.EOPNOTSUPP
	case r.Attr.IsGlobal == 0, r.Attr.PortNum != 1, int(g.SGIDIndex) >= len(c.m.config.gids()):
		return nil, syscall.EINVAL
	case !c.m.config.routes(g.SGIDIndex, g.DGID) && !multicast(g.DGID):
		return nil, syscall.ENETUNREACH
	}
	own := uapi.MLX5CreateAHResp{ResponseLength: uint32(c.room(uapi.AttrUHWOut)), DMAC: macOf(g.DGID)}
	if err := c.out(uapi.AttrUHWOut, bytesOf(&own)); err != nil {
		return nil, err
	}
	p.used++
	return u32(c.add(&ah{p})), nil
}

func (c *call) destroyAH() error {
	h := c.number(uapi.AttrDestroyAHHandle)
	a, err := object[*ah](c.context, h)
	if err != nil {
		return err
	}
	a.pd.used--
	delete(c.objects, uint32(h))
	return nil
}
