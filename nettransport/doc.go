// Package nettransport moves messages between two processes as NCCL's net_ib transport does, byte for byte, so that either end
// may be NCCL's. It is usable alone.
//
// # A connection
//
// A [Transport] owns logical NICs of one to four ports. A [Listener] gives a 128-byte handle that goes to the peer by other
// means; [Transport.Connect] there makes the [SendComm], [Listener.Accept] here the [RecvComm]. A connection carries messages
// one way. Memory is registered with the connection ([Comm.RegMR]; [Comm.RegMRGPU] or [Comm.RegMRDMABuf] for a GPU's), and [Buffer] names
// a range of it.
//
// The receiver offers buffers with [RecvComm.Irecv]: up to eight in one request, each with a tag. [SendComm.Isend] sends into
// the first offer that has its tag and nothing yet, among those of the oldest request that is not full: a request is filled
// before the next one is looked at. ok is false while the peer has offered nothing that fits; that is no error, call again. A
// [Request] makes progress, and tells its outcome once, in [Request.Test].
//
// [Transport.Driver] is the same behind the seam of package transport, which chooses among ways to connect the ranks of a job: rings
// of eight steps at both ends, in GPU memory where the devices reach that, and a proxy that moves what the producer has made.
//
// # Concurrency
//
// A connection and its requests belong to one goroutine at a time; connections are independent of each other. Isend, Irecv,
// Flush and Test allocate nothing, wait for nobody and hold no lock but those of the queues. Transport and Listener may be used
// from any goroutine.
//
// # What goes over the wire
//
// Each connection has queue pairs on all ports of the NIC in turn. A message uses K of them, the larger number of ports of both
// ends (all of them with Config.Split), beginning where the message before it ended: both ends move this cursor alike, for
// empty messages too. The message is cut into K pieces, each a multiple of 128 bytes. Each queue pair gets its pieces by
// RDMA_WRITE, the last request is an RDMA_WRITE_WITH_IMM, and that one alone is signaled. The immediate data is the length of
// the message; for requests of several buffers the lengths go into a ring of the receiver (package fifo) and the immediate data
// is 0. Credits go the other way, one RDMA_WRITE for each request of the receiver.
//
// socketboot.Layout chooses the bytes of other NCCL versions, up to 8 ports with the newest. Data paths of NCCL were recorded with
// 2.25.1 only. From 2.29.7 on NCCL can be set to match messages at the receiver and to survive the loss of a port; such settings
// must be off at a peer that is NCCL.
//
// # Failure
//
// A connection fails as a whole and for good: every queue pair goes to the error state, each request in flight ends with the one
// error that names device, port, queue pair, both GIDs, the status of the completion and the peer's address, and every later
// call returns it. What had completed before stays completed: a peer that closes after its last message harms nothing. The TCP
// connection of the handshake stays open to tell when the peer's process ends: requests in flight then fail within
// Config.Timeout, also on devices which retry for ever.
//
// # Where it differs from NCCL
//
// What a peer sees on the wire is the same; these differences keep users of NCCL out of known trouble:
//
//   - Both ends take the smaller path MTU. NCCL's acceptor takes the connector's.
//   - The address of a queue pair names the local port. NCCL names the peer's.
//   - An acceptor makes as many queue pairs as the connector did, and a connector compares. NCCL trusts that
//     NCCL_IB_QPS_PER_CONNECTION is the same at both ends, and else mixes up messages.
//   - The bytes that arrive on each queue pair and the immediate data of all of them must fit the message, so another number of
//     queue pairs or another NCCL_IB_SPLIT_DATA_ON_QPS is an error and not wrong data.
//   - Sizes of requests with several buffers are written with the key of the remote device in use. NCCL takes the key of the
//     local number, which fails with unequal NICs.
//   - Credits that have arrived in part are "not yet". NCCL spins for the rest.
//   - Inline credits are of one buffer. NCCL's fail with more.
//   - Completion queues hold what the queue pairs on their device can complete, also when the peer has more devices.
//   - A message longer than the buffer is cut, as by NCCL, but counted in Stats and logged once.
//   - A request that finds no free slot is ok == false. NCCL fails.
//   - A peer that ends is noticed by its TCP connection. NCCL waits for the device.
//   - Everything a peer says is checked before it is used.
package nettransport
