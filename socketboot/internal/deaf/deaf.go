// Package deaf is, for tests, a listener whose process has no descriptors left.
package deaf

import (
	"net"
	"syscall"
)

// Listener fails each Accept with EMFILE, and tells Failed if somebody receives from it just then, or there is room.
type Listener struct {
	net.Listener
	Failed chan<- struct{}
}

// Accept fails.
func (l Listener) Accept() (net.Conn, error) {
	select {
	case l.Failed <- struct{}{}:
	default:
	}
	return nil, &net.OpError{Op: "accept", Net: "tcp", Err: syscall.EMFILE}
}
