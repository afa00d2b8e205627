//go:build unix

package transport

import (
	"io/fs"
	"syscall"
)

// deviceOf is the number of the device that a file lies on.
func deviceOf(info fs.FileInfo) uint64 {
	if s, ok := info.Sys().(*syscall.Stat_t); ok {
		return uint64(s.Dev)
	}
	return 0
}
