// Package memdriver is RDMA devices that exist only in the memory of this
// process, for tests of everything above the verbs.
//
// It is a test double, not a device to use: both ends live in one process, one
// lock serialises the whole fabric, and it is strict where real devices are
// lax, so that a mistake shows in a test and not on one brand of adapter. For a
// device without hardware that reaches other machines use package softroce.
//
// # Use
//
//	fabric := memdriver.New(memdriver.Config{})
//	dev, err := ibverbs.Open("mem0", ibverbs.WithDrivers(fabric))
//
// All devices of one Driver reach each other. Two Drivers do not.
//
// # When requests run
//
// A request runs inside the call that made it possible: PostSend, the PostRecv
// or the Modify at the peer that it waited for, or Device.Step while the device
// is held. No goroutine is started, so a test with one goroutine is repeatable
// to the byte. What waits for time (a peer that does not answer, a peer without
// a receive, Config.Delay) waits on timers of package time, and so runs in
// virtual time under testing/synctest if the Driver was made inside the bubble.
//
// # Where it is strict
//
//   - A slot of a send or receive queue is free again when a completion that
//     covers it was polled, as on hardware; requests without Signaled are
//     covered by the next completion after them.
//   - Local and remote keys of a registration differ.
//   - Modify wants exactly the attributes that the IBTA's table has, a path MTU
//     that the port has, and a GID index in use. PSNs of both ends must agree.
//   - Arming a queue that has completions gives no event for them.
//   - Calls that break the rules of package driver (two posts on one QP at once,
//     a call after Close) panic, since package ibverbs is there to prevent them.
//
// Data arrives in rising order of addresses, the last words by atomic stores,
// as on the devices in use; a reader that watches the last word of a message
// sees the rest. Device.DelayTail takes that away.
package memdriver
