//go:build linux

package main

import (
	"unsafe"

	"github.com/purerdma/purerdma/internal/offheap"
)

// wordAt is a word on a cache line of its own.
func wordAt(s offheap.Span, i int) *uint64 { return (*uint64)(unsafe.Add(s.Pointer(), i*128)) }
