package bootstrap

import (
	"net"
	"time"

	"golang.org/x/sys/unix"
)

// unansweredFor ends a connection whose data is not acknowledged, for which TCP has no keepalive.
func unansweredFor(c *net.TCPConn, d time.Duration) {
	if raw, err := c.SyscallConn(); err == nil {
		_ = raw.Control(func(fd uintptr) {
			_ = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, int(d.Milliseconds()))
		})
	}
}
