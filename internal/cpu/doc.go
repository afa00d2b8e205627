// Package cpu is the few instructions that rings in shared memory, and their benchmarks, need and Go has no words for: a bounded poll
// that pauses between looks, stores that go past the caches, lines that leave them, and the time that one load takes.
// Processors without assembly here poll in Go, copy through the caches, and tell no times; everything works there, large messages between
// distant cores more slowly.
//
// Every pointer is to memory outside the Go heap, which other processes change: the race detector does not follow assembly.
package cpu

// Line is the size in bytes of a cache line, the unit in which processors pass memory to each other.
const Line = 64
