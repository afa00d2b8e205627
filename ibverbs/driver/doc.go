// Package driver is the seam between the verbs and a device: the types that
// cross it, and what a driver must offer. Programs use package ibverbs, which
// has the same types as aliases; only drivers import this package.
//
// # Who locks
//
// Package ibverbs does. Calls of PostSend on one QP come one at a time, so do
// those of PostRecv, those of Poll on one CQ, and the control calls (Modify,
// Query, Arm, Close …) of one object. None comes during or after Close but
// NextEvent and CompChannel.Wait, which return ErrClosed then, and QP.Purge.
// Around QP.Close, and around a Modify to Reset, the locks of the QP are held,
// but not those of its CQs: these calls may sit in the kernel, and a poll waits
// for nothing. Purge comes after them, under the locks of both CQs. No QP is
// made on the device between a Close and its Purge, since it might get the same
// number. Posts and polls of different objects run at the same time, also of a
// QP and its CQ.
//
// # Who keeps what
//
// Slices handed to PostSend, PostRecv and Poll, and all they point to, may lie
// on the caller's stack and are reused as soon as the call returns. A driver
// copies what it needs before it returns and keeps no reference. The
// conformance suite drivertest overwrites them at once to see that it did.
//
// # What blocks
//
// Post, Poll and Arm never wait for anything. Control calls may sit in the
// kernel: Modify to RTR for about a second while it resolves an address, Close
// of an MR until no access is in progress. Calls that take a context.Context
// wait for an event, and return when it is done or the object is closed.
//
// # Errors
//
// Drivers return a bare errno, a sentinel of this package (which wraps the
// errno the kernel would give) or a *NotSupportedError. Package ibverbs wraps
// them in an *Error with the operation, the device and the object.
//
// # Values
//
// Enumerations have the kernel's values and the names of the verbs in Go
// spelling: IBV_WC_RETRY_EXC_ERR is RetryExcErr. Structures are not the
// kernel's, and none of them crosses a system call.
package driver
