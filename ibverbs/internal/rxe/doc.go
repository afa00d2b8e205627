// Package rxe drives Soft-RoCE, the kernel's RoCEv2 device in software
// (rdma_rxe, driver id 14).
//
// # Queues
//
// Send queue, receive queue, SRQ and CQ are rings of fixed-size elements in memory
// that the kernel shares with the process (rdma_user_rxe.h). Stride and mask
// come from the head of the ring and are read once. The other end is a
// processor, so an acquiring load and a releasing store of the indices are all
// the order that is needed. Receives and completions cost no system call; sends
// cost one a list, the doorbell, in which the kernel does the sending.
//
// # What the kernel does not do
//
// The driver of Linux 6.1 trusts a ring's entries and forgets some duties of a
// device. This package does them instead:
//
//   - A path MTU above the port's is accepted there and then never delivers:
//     refused by Modify.
//   - A doorbell refused in a wrong state leaves its entries to run later:
//     the state is checked before the ring is touched, and when a doorbell fails
//     all the same, the queue pair is moved to ERR, which flushes them.
//   - A receive posted in ERR is not flushed: PostRecv moves the queue pair to
//     ERR once more, which does. ERR is known from Modify, from Query, and from
//     failed completions that Poll has seen.
//   - Completions that do not fit a CQ are lost while the queue pair goes on.
//     NextEvent marks the CQ, and Poll says ErrCQOverrun from then on; the
//     caller moves the queue pairs of the CQ to ERR.
//   - Completions of a destroyed or reset queue pair stay in the CQ: they are
//     taken out.
//   - A datagram longer than the port's MTU is dropped and completes as sent:
//     refused by PostSend, by the MTU that the port had at RTS.
//   - A Q_Key with the highest bit set goes onto the wire as it is: PostSend sends
//     the queue pair's own instead (IBTA 10.2.5).
//   - Multicast groups are not joined in the network stack, which then drops their
//     packets: Multicast joins, by a socket.
//   - A queue pair that is in a group cannot be destroyed: Close detaches it.
//   - Receives of an SRQ are looked up in the domain of the queue pair: CreateQP
//     refuses an SRQ of another. PostSend refuses an address handle of another, and
//     has a bind of an MR of another end in error.
//   - A queue pair that is destroyed while a memory window is bound by it takes 50
//     seconds, and leaves the window with a pointer to freed memory: Close makes
//     the windows anew before, and so does a Modify to RESET.
//   - To invalidate a window that is not bound crashes, and one that another queue
//     pair or process has bound is invalidated: PostSend follows what is bound, and
//     has OpLocalInv of anything else end in error.
//   - Queues may be registered as memory: refused by RegMR.
//   - The limits of a queue pair, its opcodes and the flag for inline data are
//     not checked in entries of a ring: PostSend and PostRecv do.
//   - Objects live as long as a ring is mapped or an event file open, whatever
//     is closed: Close destroys, unmaps, and closes the files, in that order.
//
// What it cannot help: a window opens the whole MR, as the kernel checks no other
// range. A peer that invalidates a window twice, or while OpLocalInv does the same,
// crashes the kernel. It frees what a process leaves from the newest to the oldest, so
// a window that is older than the queue pair it is bound by makes it wait as above.
//
// A queue pair that goes to ERR because its peer broke a rule, with no receive
// posted and no send under way, gives no sign at all: neither completion nor
// event. Query sees it, and flushes what was posted since.
package rxe
