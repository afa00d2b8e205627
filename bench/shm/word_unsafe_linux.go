package main

import (
	"unsafe"

	"github.com/purerdma/purerdma/internal/offheap"
)

// wordAt is a word of mapped memory; off is a multiple of its size and within.
func wordAt(s offheap.Span, off int) *uint64 { return (*uint64)(unsafe.Add(s.Pointer(), off)) }
