package transport

import (
	"fmt"
	"strings"
)

// order is NCCL's. Transports by other names (of tests, of programs) may stand anywhere.
var order = []string{"P2P", "SHM", "NET", "COLLNET"}

// Refusal is a transport that was not taken, and why.
type Refusal struct {
	Transport string
	Rank      int // which end refused it
	Reason    string
}

func (r Refusal) String() string {
	return fmt.Sprintf("%s: %s (rank %d)", r.Transport, r.Reason, r.Rank)
}

// Choice is what connects two ranks.
type Choice struct {
	Transport string // "" = none can
	Reason    string // what the transport said when it was asked, where it said something
	Refused   []Refusal
}

func (c Choice) String() string {
	s := c.Transport
	if s == "" {
		s = "none"
	}
	if c.Reason != "" {
		s += " (" + c.Reason + ")"
	}
	if len(c.Refused) > 0 {
		var why []string
		for _, r := range c.Refused {
			why = append(why, r.String())
		}
		s += "; not " + strings.Join(why, "; not ")
	}
	return s
}

// choose asks the transports from number from on, in their order. index is len(c.transports) if none can.
func (c *Communicator) choose(peer, from int) (index int, choice Choice) {
	self, other := &c.peers[c.rank], &c.peers[peer]
	for i := from; i < len(c.transports); i++ {
		t := c.transports[i]
		v := c.forbidden(t.Name(), self, other)
		if v.OK {
			v = t.CanConnect(self, other)
		}
		if v.OK {
			choice.Transport, choice.Reason = t.Name(), v.Reason
			return i, choice
		}
		choice.Refused = append(choice.Refused, Refusal{t.Name(), c.rank, v.Reason})
	}
	return len(c.transports), choice
}

// forbidden is what the environment says. NCCL_P2P_DISABLE and NCCL_P2P_LEVEL are about the distance of GPUs, which P2P knows.
func (c *Communicator) forbidden(name string, self, other *PeerInfo) Verdict {
	switch {
	case name == "SHM" && c.vars.SHMDisable:
		return Verdict{Reason: "NCCL_SHM_DISABLE=1"}
	case name == "NET" && c.vars.NetDisableIntra && self.SameHost(other):
		return Verdict{Reason: "NCCL_NET_DISABLE_INTRA=1, and the ranks are on one host"}
	}
	return Verdict{OK: true}
}

func (c *Communicator) number(name string) int {
	for i, t := range c.transports {
		if t.Name() == name {
			return i
		}
	}
	return -1
}
