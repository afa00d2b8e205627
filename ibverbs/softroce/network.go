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

type (
	// Sim is a network in memory that loses, doubles, reorders and damages packets by a
	// seed. NewSim makes one. While it runs, SetFaults(Faults) changes what it does,
	// Block(src, dst, on) makes the way from one address to another a black hole, and
	// SetPort(addr, up) takes a port down or up.
	Sim = link.Sim
	// SimConfig is what NewSim makes: Seed, Faults, MTU of every port (0 is 1500),
	// RecvBuffer in bytes of each port (0 is 4 MiB), and Split, which delivers each
	// packet alone.
	SimConfig = link.SimConfig
	// Faults is what becomes of packets: Loss, Duplicate, Reorder, Corrupt and Mark
	// (congestion experienced) are probabilities from 0 to 1 for each; a packet that is
	// reordered is overtaken by up to Depth (0 is 8) later ones within Hold (0 is 100 µs);
	// every packet takes Delay, and up to Jitter more.
	Faults = link.Faults
)

// NewSim makes a network without ports.
func NewSim(c SimConfig) *Sim { return link.NewSim(c) }

// OnSim is the network for Config. Devices on it need addresses.
func OnSim(s *Sim) Network { return onSim{s} }

type onSim struct{ s *Sim }

func (n onSim) Open(addr netip.Addr) (Link, error) { return n.s.Listen(addr) }
