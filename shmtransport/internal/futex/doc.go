// Package futex is what sleeping on a word of shared memory takes: the kernel's futex for words that several processes map, and the
// barrier that one processor can ask of all others.
package futex
