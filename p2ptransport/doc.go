// Package p2ptransport connects ranks whose GPUs reach each other's memory: NCCL's
// P2P transport (p2p.cc). The data never touches the host; kernels of package
// gpu/kernels, or copies, move it through the buffers that this package sets up.
//
// # Who owns what
//
// The sender allocates SendMem, the receiver RecvMem and the buffers of LL, LL128
// and SIMPLE, each on its own GPU, in one piece that is rounded up to 2 MiB. In read
// mode SIMPLE's buffer is the sender's. Each end maps the other's piece:
//
//   - DIRECT: both ranks are of this process. The piece is found in a table by a
//     token; an address that came from a peer is never used.
//   - CUMEM: the piece was made to be shared. Its descriptor comes over a Unix socket
//     of the owner, which gives it to processes of the same user that know the token.
//   - IPC: the GPU's driver cannot share by descriptor; a legacy handle is in the
//     blob itself.
//
// Where NVLink joins two GPUs only over a third, both pieces lie on that (INTERMEDIATE): each
// end allocates its own there, and shares it in one of these ways.
//
// The socket stays open as long as the connection: either end learns of the death of
// the other's process (driver.Watcher), and ends its kernels.
//
// # One GPU, two processes
//
// Without MPS processes take turns on a GPU, and a kernel that waits for another
// process's waits for its turn. Connections whose ends are so say it
// (GPUConn.NoKernels): copies move the data then. Where kernels may wait, all of them are
// on the GPU before the first is launched (kernels.Load): one that is loaded while
// another waits for it never comes.
//
// # Where we differ from NCCL
//
// Several ranks may share a GPU. A rank is told apart by the GPU's UUID, so that
// hidden and renumbered devices, and instances (MIG) of one GPU, are what they are.
package p2ptransport
