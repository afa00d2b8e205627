//go:build linux

package main

import "unsafe"

// word is a word on a cache line of its own.
func (p *page) word(i int) *uint64 { return (*uint64)(unsafe.Add(p.span.Pointer(), i*line)) }
