// Package fifo is the two rings that a peer writes by RDMA, as NCCL's network
// transport has them.
//
// # The rings
//
// The receiver of data offers its buffers. It keeps a copy of the ring of
// offers, [CreditStaging], and writes each row by RDMA into the ring of the
// sender of data, [Credits]: NCCL's clear-to-send FIFO. A row is a group of 1 to
// 8 buffers. The other way, the sender tells the sizes of a group of several
// messages: from its copy, [SizesStaging], into the receiver's ring, [Sizes].
// The size of a single message comes as immediate data instead.
//
//	receiver of data             sender of data
//	CreditStaging  --- write -->  Credits
//	Sizes          <-- write ---  SizesStaging
//
// Both rings have 256 rows, and message k uses row k modulo 256. An offer holds
// k+1 as its last word to arrive, so a row that is zero offers nothing. k has 64
// bits and is compared for wrap.
//
// # What a peer wrote
//
// Nothing in a ring that a peer writes is trusted. It is copied once, then
// checked, then used: the copy cannot change any more. Nobody waits for a peer
// here: what has not arrived is "not yet", also the rest of a row of which the
// first offer is there.
//
// # Registration
//
// NCCL registers all four with LocalWrite, RemoteWrite and RemoteRead, and never
// with relaxed ordering, which could show an offer before its fields. The memory
// is zero before its key leaves the process.
//
// # Concurrency
//
// A ring belongs to one goroutine at a time. No call blocks, and none but the
// constructors and errors allocates.
package fifo
