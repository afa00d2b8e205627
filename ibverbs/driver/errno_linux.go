package driver

import (
	"syscall"

	"golang.org/x/sys/unix"
)

// errnoName is the symbol of an errno. Linux gives 95 two names; the verbs know
// it as EOPNOTSUPP.
func errnoName(e syscall.Errno) string {
	if e == unix.EOPNOTSUPP {
		return "EOPNOTSUPP"
	}
	return unix.ErrnoName(e)
}
