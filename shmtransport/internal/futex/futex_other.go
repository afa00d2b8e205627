//go:build !linux

package futex

import (
	"errors"
	"time"
)

// Wait is for Linux.
func Wait(*uint32, uint32, time.Duration) error { return errors.ErrUnsupported }

// Wake is for Linux.
func Wake(*uint32) {}

// Register is for Linux.
func Register() error { return errors.ErrUnsupported }

// Barrier is for Linux.
func Barrier() {}
