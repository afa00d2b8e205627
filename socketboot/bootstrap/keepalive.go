package bootstrap

import (
	"net"
	"time"

	"github.com/purerdma/purerdma/socketboot"
)

// silence is after how long without an answer a peer's host counts as gone: its kernel answers even while the process is stopped.
const silence = 20 * time.Second

// keepAlive makes TCP notice a host that has vanished, whether or not something is being sent to it.
func keepAlive(c net.Conn) {
	tcp, ok := c.(*net.TCPConn)
	if !ok {
		return
	}
	const probes = 4
	_ = tcp.SetKeepAliveConfig(net.KeepAliveConfig{Enable: true, Idle: silence / probes, Interval: silence / probes, Count: probes - 1})
	unansweredFor(tcp, silence)
}

// netDefaults fills in what this package needs of a Net.
func netDefaults(n socketboot.Net) socketboot.Net {
	if n.Deadlines.Hello == 0 {
		n.Deadlines.Hello = 5 * time.Second
	}
	if n.Deadlines.Total == 0 {
		n.Deadlines.Total = 30 * time.Second
	}
	if n.Log == nil {
		n.Log = discard
	}
	return n
}
