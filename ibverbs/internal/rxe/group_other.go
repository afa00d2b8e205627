//go:build !linux

package rxe

import (
	"net/netip"
	"syscall"
)

func joinGroup(netip.Addr, []int) (func() error, error) { return nil, syscall.ENOSYS }
