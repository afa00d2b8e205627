//go:build unix && !linux

package offheap

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

func hugeFlags(int) (int, error) {
	return 0, fmt.Errorf("huge pages outside Linux: %w", errors.ErrUnsupported)
}

func adviseHuge([]byte) {}

func filePage(int) int { return unix.Getpagesize() }

// Populate is a feature of Linux.
func (s Span) Populate() error {
	return fmt.Errorf("making pages ahead outside Linux: %w", errors.ErrUnsupported)
}
