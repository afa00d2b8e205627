//go:build !linux

package main

import "errors"

// pin is an error: it is for Linux.
func pin(int) (unpin func() error, err error) { return nil, errors.ErrUnsupported }

// processors is none: nothing is pinned here.
func processors() (a, b int, ok bool) { return 0, 0, false }
