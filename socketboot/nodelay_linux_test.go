package socketboot

import (
	"net"
	"syscall"
	"testing"
)

// The handshake is small messages in turn: both ends rely on package net to have set TCP_NODELAY.
func TestNoDelay(t *testing.T) {
	l := serve(t, local, newOwners(t))
	conn, acc := pair(t, local, l)
	for _, c := range []*Conn{conn, acc} {
		raw, err := c.c.(*net.TCPConn).SyscallConn()
		if err != nil {
			t.Fatal(err)
		}
		for _, opt := range []struct{ level, name int }{{syscall.IPPROTO_TCP, syscall.TCP_NODELAY}, {syscall.SOL_SOCKET, syscall.SO_KEEPALIVE}} {
			v := 0
			if outer := raw.Control(func(fd uintptr) { v, err = syscall.GetsockoptInt(int(fd), opt.level, opt.name) }); outer != nil || err != nil || v == 0 {
				t.Errorf("option %v is %d: %v, %v", opt, v, outer, err)
			}
		}
	}
}
