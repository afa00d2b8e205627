// Package unixdial connects to Unix sockets that many processes connect to at once.
package unixdial

import (
	"context"
	"errors"
	"net"
	"syscall"
	"time"
)

// Packet connects to a Unix socket that keeps packets apart (SOCK_SEQPACKET), and waits where its queue is full, for which the kernel has
// EAGAIN and package net no patience. It gives up when ctx ends, which the error need not say, or at limit.
func Packet(ctx context.Context, addr string, limit time.Time) (*net.UnixConn, error) {
	const least, most = time.Millisecond, 20 * time.Millisecond
	d := net.Dialer{Deadline: limit}
	for pause := least; ; pause = min(2*pause, most) {
		nc, err := d.DialContext(ctx, "unixpacket", addr)
		if err == nil {
			return nc.(*net.UnixConn), nil
		}
		if !Full(err) || time.Now().Add(pause).After(limit) {
			return nil, err
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return nil, err
		}
	}
}

// Full says that a connect has failed since the listener's queue is full: there is a listener.
func Full(err error) bool { return errors.Is(err, syscall.EAGAIN) }
