//go:build !linux

package pin

import "errors"

// To is an error: it is for Linux.
func To(int) (unpin func() error, err error) { return nil, errors.ErrUnsupported }

// Processors is none: nothing is pinned here.
func Processors() (a, b int, ok bool) { return 0, 0, false }
