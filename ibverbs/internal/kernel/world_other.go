//go:build !linux

package kernel

import (
	"context"
	"os"
	"syscall"

	"github.com/purerdma/purerdma/ibverbs/internal/uverbs"
)

// Default is a machine without the kernel's verbs: it has no devices.
func Default() World {
	return World{
		Kernel:        uverbs.Linux{},
		Sys:           os.DirFS("/sys"),
		Dev:           os.DirFS("/dev"),
		DevDir:        "/dev",
		Proc:          os.DirFS("/proc"),
		Netlink:       func(uint16, bool, []byte) ([][]byte, error) { return nil, syscall.ENOSYS },
		Uevents:       func(context.Context, func([]byte)) error { return syscall.ENOSYS },
		InterfaceName: func(int) string { return "" },
		NetDevice:     func(string) (string, error) { return "", syscall.ENOSYS },
	}
}
