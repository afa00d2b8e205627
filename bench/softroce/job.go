package main

import (
	"fmt"
	"net/netip"
	"time"

	"github.com/purerdma/purerdma/bench/control"
	"github.com/purerdma/purerdma/bench/report"
	"github.com/purerdma/purerdma/qp"
)

// orders are what the second process is told, and the first tells itself.
type orders struct {
	Slice time.Duration // of a mode that streams
	QPs   int           // of the mode with many
	CPU   int           // the processor that the end stays on, -1 for any
	Modes []mode
}

const (
	noCPU = -1
	// message is the bytes of a large write.
	message = 1 << 20
	// depth is how many requests a queue takes.
	depth = 128
	// pingPongs is the round trips of a slice, fewer of those with pauses.
	pingPongs, pausedPingPongs = 400, 50
	// pause is longer than anybody polls.
	pause = 400 * time.Microsecond
	// looks is how often the reference looks before it sleeps.
	looks = 500
	// seed is that of the data.
	seed = 0x736f6674726f
)

// hello is the first line between the two ends.
func hello() control.Hello {
	return control.Hello{Protocol: "purerdma-softroce", Version: 1, Build: report.Build()}
}

// place is what an end tells the other: where to write, and the ports of its UDP sockets.
type place struct {
	Addr  uint64
	RKey  uint32
	Len   int
	QPs   int // of them information follows
	Ports ports
}

// ports are those of the reference's sockets, at an IPv4 address.
type ports struct {
	Addr                   netip.Addr
	Stream, Polled, Waited int
}

func (p place) check(o orders) error {
	if p.Len != memory || p.RKey == 0 || p.Addr == 0 || p.QPs != o.queuePairs() {
		return fmt.Errorf("%d bytes of memory at %#x, %d queue pairs: %w", p.Len, p.Addr, p.QPs, control.ErrProtocol)
	}
	if !p.Ports.Addr.Is4() {
		return fmt.Errorf("the UDP sockets' address %v: %w", p.Ports.Addr, control.ErrProtocol)
	}
	for _, n := range []int{p.Ports.Stream, p.Ports.Polled, p.Ports.Waited} {
		if n < 1 || n > 65535 {
			return fmt.Errorf("UDP port %d: %w", n, control.ErrProtocol)
		}
	}
	return nil
}

// queuePairs is how many an end has: one for each path MTU, one for latency, those of the modes with one and with many.
func (o orders) queuePairs() int { return special + o.QPs }

const (
	qp1024 = iota
	qp4096
	qpLatency
	qpOne
	special // those before the many
)

// infos is part of the list of queue pairs.
type infos struct{ List []qp.Info }

// infosPerLine keeps lines short.
const infosPerLine = 100

// The messages between the two ends: where each is, that it is connected; then for each slice its mode, that the other end is ready, that
// the slice is over, and what the other end found.
const (
	sayPlace     = "place"
	sayInfos     = "queue pairs"
	sayConnected = "connected"
	saySlice     = "slice"
	sayReady     = "ready"
	sayOver      = "over"
	sayChecked   = "checked"
)
