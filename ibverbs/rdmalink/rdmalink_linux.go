package rdmalink

import (
	"fmt"

	"github.com/vishvananda/netlink"

	"github.com/purerdma/purerdma/ibverbs"
)

func add(name, kind, netDevice string) error { return netlink.RdmaLinkAdd(name, kind, netDevice) }

func del(name string) error {
	if _, err := netlink.RdmaLinkByName(name); err != nil {
		return fmt.Errorf("%w: %w", ibverbs.ErrNoDevice, err)
	}
	return netlink.RdmaLinkDel(name)
}

func mode() (string, error)  { return netlink.RdmaSystemGetNetnsMode() }
func setMode(m string) error { return netlink.RdmaSystemSetNetnsMode(m) }
