package tune

import (
	"net/netip"

	"github.com/purerdma/purerdma/nettransport"
	"github.com/purerdma/purerdma/socketboot"
)

func handleOf(addr string) nettransport.Handle {
	return socketboot.HandleFor(netip.MustParseAddrPort(addr), socketboot.Magic)
}
