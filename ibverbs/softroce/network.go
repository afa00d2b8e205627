package softroce

import (
	"net/netip"

	"github.com/purerdma/purerdma/ibverbs/softroce/internal/link"
)

// Network gives links. Several drivers on one network are several hosts.
type Network interface {
	// Open binds an address; the zero address is any that is free.
	Open(addr netip.Addr) (Link, error)
}

// Link is one address on a network that moves packets.
type Link = link.Link

// Sim is a network in memory that loses, doubles, reorders and damages packets by a
// seed. NewSim makes one.
type (
	Sim       = link.Sim
	SimConfig = link.SimConfig
	Faults    = link.Faults
)

// NewSim makes a network without ports.
func NewSim(c SimConfig) *Sim { return link.NewSim(c) }

// OnSim is the network for Config. Devices on it need addresses.
func OnSim(s *Sim) Network { return onSim{s} }

type onSim struct{ s *Sim }

func (n onSim) Open(addr netip.Addr) (Link, error) { return n.s.Listen(addr) }
