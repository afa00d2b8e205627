package mlx5

import (
	"errors"
	"math/rand/v2"
	"sync/atomic"

	"github.com/purerdma/purerdma/ibverbs/driver"
	"github.com/purerdma/purerdma/ibverbs/internal/uapi"
	"github.com/purerdma/purerdma/ibverbs/internal/uverbs"
	"github.com/purerdma/purerdma/internal/mlx5prm"
)

// AH is an address handle: the address as it is copied into each datagram. It
// implements driver.AH.
type AH struct {
	pd     *PD
	av     mlx5prm.AV
	h      uverbs.AHHandle
	kernel bool // h is one
	closed atomic.Bool
}

// CreateAH implements driver.PD. On Ethernet the kernel resolves the peer's address,
// on InfiniBand it is not asked.
func (p *PD) CreateAH(a driver.AHAttr) (driver.AH, error) {
	port, err := p.dev.port(a.Port)
	if err != nil {
		return nil, err
	}
	if err := port.takesAV(&a); err != nil {
		return nil, err
	}
	ah := &AH{pd: p}
	if port.link != driver.LinkEthernet {
		ah.av = infinibandAV(&a)
		return ah, nil
	}
	if !p.dev.resolves {
		return nil, &driver.NotSupportedError{Feature: driver.FeatureAH, By: driver.LacksKernel, Since: "Linux 4.5"}
	}
	kind, err := p.dev.gidType(a.Port, a.SGIDIndex, port.gids)
	if err != nil {
		return nil, err
	}
	var resp uapi.MLX5CreateAHResp
	if ah.h, err = p.dev.Dev.CreateAH(p.h, &a, uverbs.UHW{Out: bytesOf(&resp)}); err != nil {
		return nil, explainAV(err, &a)
	}
	ah.kernel = true
	ah.av = ethernetAV(&a, kind, resp.DMAC)
	return ah, nil
}

// Close implements driver.AH. Datagrams that were posted have its address already.
func (h *AH) Close() error {
	h.closed.Store(true)
	if !h.kernel {
		return nil
	}
	return h.pd.dev.Dev.DestroyAH(h.h)
}

// infinibandAV is the address on InfiniBand, where a global route header is an
// option.
func infinibandAV(a *driver.AHAttr) mlx5prm.AV {
	v := mlx5prm.AV{StatRateSL: staticRate(a.StaticRate)<<4 | a.SL, FLMLID: a.SrcPathBits}
	v.RLID.Set(a.DLID)
	if a.IsGlobal {
		setRoute(&v, a, mlx5prm.AVGlobal)
	}
	return v
}

// ethernetAV is the address on Ethernet, where the global route header is not an
// option and the bit that asks for it is reserved. The place of the LID is the UDP
// source port of RoCE v2.
func ethernetAV(a *driver.AHAttr, kind driver.GIDType, mac [6]uint8) mlx5prm.AV {
	v := mlx5prm.AV{StatRateSL: staticRate(a.StaticRate)<<4 | a.SL<<1, RMAC: mac}
	if kind == driver.GIDTypeRoCEv2 {
		v.RLID.Set(sourcePort(a.FlowLabel))
	}
	setRoute(&v, a, 0)
	return v
}

func setRoute(v *mlx5prm.AV, a *driver.AHAttr, global uint32) {
	v.TClass, v.HopLimit, v.RGID = a.TrafficClass, a.HopLimit, a.DGID
	v.GRHGIDFL.Set(global | uint32(a.SGIDIndex)<<20 | a.FlowLabel)
}

// sourcePort spreads the flows of a pair of hosts: that of the flow label
// (ibv_flow_label_to_udp_sport), any of the range that RoCE v2 uses without one.
func sourcePort(label uint32) uint16 {
	const least = 0xc000
	if label == 0 {
		return uint16(rand.Uint32()) | least
	}
	return uint16((label^label>>14)&0x3fff) | least
}

// rates is the device's code of each enum ibv_rate, that of the next higher rate
// where it has none; 0 is unlimited.
var rates = [...]uint8{2: 7, 3: 8, 4: 9, 5: 10, 6: 11, 7: 12, 8: 13, 9: 14, 10: 15, 11: 11, 12: 13, 13: 15, 15: 9, 16: 15, 19: 9, 20: 13, maxRate: 0}

// maxRate is the highest enum ibv_rate (IBV_RATE_1200_GBPS).
const maxRate = 24

func staticRate(code uint8) uint8 { return rates[min(code, maxRate)] }

// gidType is how packets from an entry of the port's GID table look.
func (c *Context) gidType(port, index, gids int) (driver.GIDType, error) {
	all, err := c.Dev.GIDs(port, gids, c.attr.Ports)
	if errors.Is(err, driver.ErrNotSupported) {
		all, err = c.GIDs(port)
	}
	if err != nil {
		return 0, err
	}
	for i := range all {
		if all[i].Index == index {
			return all[i].Type, nil
		}
	}
	return 0, emptyGID(port, index)
}
