//go:build !linux

package link

import "syscall"

// ListenPacket needs Linux.
func ListenPacket(cfg PacketConfig) (Link, error) {
	return nil, packetError(cfg.Addr, syscall.ENOTSUP, "packet sockets are Linux's: use UDP sockets")
}
