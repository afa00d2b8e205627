//go:build !linux

package driver

import "syscall"

func errnoName(syscall.Errno) string { return "" }
