//go:build !linux

package uverbs

import (
	"syscall"

	"github.com/purerdma/purerdma/internal/offheap"
)

// Linux is the kernel of this machine, which is not Linux: all calls fail.
type Linux struct{}

// Open implements Kernel.
func (Linux) Open(string) (int, uint64, error) { return -1, 0, syscall.ENOSYS }

// Ioctl implements Kernel.
func (Linux) Ioctl(int, []byte) error { return syscall.ENOSYS }

// MapRing implements Kernel.
func (Linux) MapRing(int, int64, int) (offheap.Span, error) { return offheap.Span{}, syscall.ENOSYS }

// OpenEvents implements Kernel.
func (Linux) OpenEvents(int) (EventFile, error) { return nil, syscall.ENOSYS }

// Close implements Kernel.
func (Linux) Close(int) error { return syscall.ENOSYS }
