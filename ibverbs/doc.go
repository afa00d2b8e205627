// Package ibverbs is the RDMA verbs, without cgo and without libibverbs.
//
// # Devices
//
// Devices lists what the machine has, Open opens one: by name, by PCI address,
// by an address of one of its GIDs, or the best there is. The kernel's drivers
// are built in; a program adds others by importing them. What a device lacks is
// asked with Context.Probe, never guessed from its name.
//
// # Objects
//
// A Context makes protection domains (PD), completion queues (CQ) and
// completion channels (CompChannel); a PD makes memory registrations (MR) and
// queue pairs (QP), and address handles (AH) for datagrams. Memory comes from
// package mr; package qp brings an RC QP to the state in which it sends.
//
// A QP of type UD sends one packet, up to the port's MTU, to whom SendWR.UD says,
// which AH.To makes. Its receives begin with GRHSize bytes of header;
// PD.CreateAHFromWC makes the way back of them.
//
// Requests, completions, attributes and most small types are those of package
// ibverbs/driver under the same names; go doc ibverbs/driver.SendWR, for one, lists
// the fields.
//
// # Concurrency
//
// Every method may be called from any goroutine. A send queue, a receive queue
// and a CQ have a lock each, so one QP serves several goroutines, and requests
// enter the queue in the order of the calls. For speed give each goroutine its
// own QP and CQ.
//
// # Lifetime
//
// Only Close destroys. The collector closes and unmaps nothing: a peer may be
// writing into an MR to which no Go reference is left. Close twice is nil; a
// call on a closed object is ErrClosed, never a fault. Closing a parent with
// open children is ErrBusy, names them and changes nothing; closing a Context
// closes all that was made from it, in the order that the device needs.
//
// # Data path
//
// PostSend, PostRecv and Poll wait for nothing and allocate nothing, also when
// their arguments are literals or arrays on the caller's stack. A loop of Poll
// that finds nothing must yield (runtime.Gosched) or use CQ.Wait, which sleeps
// in Go's network poller.
//
// # Errors
//
// An error that concerns a device is an *Error: the operation, the device, the
// object, the peer, the cause and, where people are known to trip, what to do.
// errors.Is finds the errno, a sentinel such as ErrQueueFull, or the Status of
// a failed completion.
package ibverbs
