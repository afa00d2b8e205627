package mlx5model

import "github.com/purerdma/purerdma/ibverbs/internal/uapi"

// What another user of an open file is told, who has its descriptor and the handles of
// objects, but did not make them.

func (c *call) queryContext() error {
	return c.outs(map[uint16][]byte{
		uapi.AttrQueryContextNumCompVectors: u32(compVectors),
		uapi.AttrQueryContextCoreSupport:    u64(uapi.CoreSupportOptionalMRAccess),
		uapi.AttrMLX5QueryContextRespUCtx:   c.m.config.uctx(c.version, c.room(uapi.AttrMLX5QueryContextRespUCtx)),
	})
}

func (c *call) queryPD() error {
	p, err := object[*pd](c.context, c.number(uapi.AttrMLX5QueryPDHandle))
	if err != nil {
		return err
	}
	return c.out(uapi.AttrMLX5QueryPDRespPDN, u32(p.num))
}

func (c *call) queryMR() error {
	m, err := object[*mr](c.context, c.number(uapi.AttrQueryMRHandle))
	if err != nil {
		return err
	}
	return c.outs(map[uint16][]byte{
		uapi.AttrQueryMRRespLKey: u32(m.key), uapi.AttrQueryMRRespRKey: u32(m.key),
		uapi.AttrQueryMRRespLength: u64(m.length), uapi.AttrQueryMRRespIOVA: u64(m.iova),
	})
}
