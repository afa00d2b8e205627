package tune

import (
	"errors"
	"fmt"
	"net"
	"net/netip"

	"github.com/purerdma/purerdma/bench/control"
	"github.com/purerdma/purerdma/bench/plan"
	"github.com/purerdma/purerdma/bench/report"
	"github.com/purerdma/purerdma/nettransport"
)

// hello is what both ends say first. The version changes with any of the messages below.
func hello() control.Hello {
	return control.Hello{Protocol: "purerdma-qptune", Version: 1, Build: report.Build()}
}

// The messages, in the order of a session. The end that sweeps asks, the other answers:
//
//	begin  -> begun
//	open   -> opening, and when both have connected, opened -> opened
//	run    -> ready, and when the messages have moved, ran -> ran
//	end    -> ended
const (
	askBegin, sayBegun     = "begin", "begun"
	askOpen, sayOpening    = "open", "opening"
	sayOpened              = "opened"
	askRun, sayReady       = "run", "ready"
	sayRan                 = "ran"
	askEnd, sayEnded       = "end", "ended"
	maxConnections         = 64
	maxTotalQPs            = 4096
	maxMessagesInProtocols = plan.MaxIters
)

// begin says what the session will be like.
type begin struct {
	MaxSize    int         `json:"max_size_bytes"`
	Depth      int         `json:"depth"`
	Attributes Attributes  `json:"attributes"`
	End        Description `json:"end"`
}

func (b begin) check() error {
	if b.MaxSize < 1 || b.MaxSize > plan.MaxSize || b.Depth < 1 || b.Depth > plan.MaxDepth || b.MaxSize > plan.MaxBuffer/b.Depth {
		return fmt.Errorf("messages of %d bytes, %d in flight: %w", b.MaxSize, b.Depth, control.ErrProtocol)
	}
	if err := b.Attributes.Check(); err != nil {
		return fmt.Errorf("%w: %w", err, control.ErrProtocol)
	}
	return nil
}

// begun answers begin.
type begun struct {
	End Description `json:"end"`
}

// agree says why two ends cannot be connected.
func agree(a, b Description) error {
	if a.LinkLayer != b.LinkLayer {
		return fmt.Errorf("%s is %s, %s at the other end is %s; choose devices of one kind with -d", a.Device, a.LinkLayer, b.Device, b.LinkLayer)
	}
	if a.LinkLayer == "Ethernet" && a.GIDType != b.GIDType {
		return fmt.Errorf("the GID of %s is of %s, that of %s at the other end of %s; choose GIDs of one type with -x", a.Device, a.GIDType, b.Device, b.GIDType)
	}
	return nil
}

// open asks for a connection.
type open struct {
	QPs    int    `json:"qps"`
	Split  bool   `json:"split"`
	Handle []byte `json:"handle"`
}

// opening answers with the handle of the way back.
type opening struct {
	Handle []byte `json:"handle"`
}

// kind is what a run does.
type kind string

const (
	check    kind = "check"    // a stream of messages with a pattern each, all of them checked
	stream   kind = "stream"   // a stream, samples checked
	pingPong kind = "pingpong" // there and back
)

// run asks for messages over a connection.
type run struct {
	Connection int    `json:"connection"`
	Kind       kind   `json:"kind"`
	Size       int    `json:"size_bytes"`
	Count      int    `json:"count"`
	Seed       uint64 `json:"seed"`
}

func (r run) check(connections, maxSize int) error {
	switch {
	case r.Connection < 0 || r.Connection >= connections:
		return fmt.Errorf("connection %d of %d: %w", r.Connection, connections, control.ErrProtocol)
	case r.Kind != check && r.Kind != stream && r.Kind != pingPong:
		return fmt.Errorf("run of kind %.20q: %w", string(r.Kind), control.ErrProtocol)
	case r.Size < 1 || r.Size > maxSize:
		return fmt.Errorf("messages of %d bytes, at most %d were announced: %w", r.Size, maxSize, control.ErrProtocol)
	case r.Count < 1 || r.Count > maxMessagesInProtocols:
		return fmt.Errorf("%d messages: %w", r.Count, control.ErrProtocol)
	}
	return nil
}

// errElsewhere is for a handle that leads to somebody else.
var errElsewhere = errors.New("the handle leads to another host than the control connection")

// handleFrom checks a handle that came over nc: it must lead to the host that sent it.
func handleFrom(b []byte, nc net.Conn) (nettransport.Handle, error) {
	var h nettransport.Handle
	if len(b) != len(h) {
		return h, fmt.Errorf("a handle of %d bytes: %w", len(b), control.ErrProtocol)
	}
	copy(h[:], b)
	if err := h.Check(); err != nil {
		return h, err
	}
	if peer, ok := addrOf(nc.RemoteAddr()); ok && h.Addr().Addr().Unmap() != peer.Unmap().WithZone("") {
		return h, fmt.Errorf("%w: to %v, and the peer is %v", errElsewhere, h.Addr().Addr(), peer)
	}
	return h, nil
}

// localOf is this machine's address on a control connection, or that of the machine itself where both ends are on it.
func localOf(nc net.Conn) netip.Addr {
	if a, ok := addrOf(nc.LocalAddr()); ok {
		return a
	}
	return netip.AddrFrom4([4]byte{127, 0, 0, 1})
}

func addrOf(a net.Addr) (netip.Addr, bool) {
	if t, ok := a.(*net.TCPAddr); ok {
		return t.AddrPort().Addr().Unmap(), true
	}
	return netip.Addr{}, false
}
