// Package spin is a lock for sections of some nanoseconds that are hardly ever
// contended, the poll of a CQ above all: it is taken by one compare-and-swap and
// released by a plain store, where sync.Mutex pays for a second locked
// instruction to see whether somebody sleeps. On the Xeon of 2025 that it was
// measured on the pair costs 10 ns instead of 20, which is what polling one
// completion costs in all.
//
// # When not to use it
//
// Nobody wakes a waiter. It yields and looks again, later it sleeps in steps of
// up to a millisecond; there is no fairness. So nothing that waits for a device,
// a peer or a system call is done under this lock, other than rarely.
//
// Under the race detector, which does not see the store, it is a sync.Mutex.
package spin
