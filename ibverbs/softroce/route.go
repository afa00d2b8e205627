package softroce

import (
	"net/netip"

	"github.com/purerdma/purerdma/ibverbs/softroce/internal/wire"
)

// route is the way to a peer device. Those that an address handle holds do not
// change, so that packets of several queue pairs may be on it at once.
type route struct {
	to   netip.AddrPort
	from uint16 // the port that packets leave from
	tos  uint8
	path wire.Path
}

// newRoute is the way to an address; the hash chooses the port.
func (e *engine) newRoute(to netip.Addr, tos uint8, hash uint32) route {
	from := e.link.Source(hash)
	r := route{to: netip.AddrPortFrom(to, wire.Port), from: from.Port(), tos: tos}
	r.path = wire.NewPath(from, r.to)
	return r
}
