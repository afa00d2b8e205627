// Package qp is queue pairs as connections use them.
//
// # A connection
//
// [New] makes a queue pair and brings it to INIT, where receives can be posted.
// The two ends tell each other their [Info] by whatever way they have, and
// [QP.Connect] checks what the peer told and brings the queue pair over RTR to
// RTS; [QP.ConnectOver] does all of it over a net.Conn. [Bundle] is the queue
// pairs of one connection and the order in which both ends use them.
//
// # Attributes
//
// [Params] holds all attributes; [Defaults] gives NCCL's, and one [Option]
// changes one of them. Three differ from NCCL 2.25, where its choice breaks
// connections: the path MTU is the smaller of both ends on both ends (NCCL's
// acceptor takes the connector's), the port of the address handle is the local
// one (NCCL's is the peer's), and a GID that was asked for must exist.
//
// NCCL's choices are those of a transport that only writes. For other uses ask
// for more: [WithAccess] with ibverbs.RemoteRead or RemoteAtomic before a peer
// may read or use atomics, [WithInline] before SendWR.Inline, [WithSGEs] for
// requests of several pieces, [WithTimeout] for a peer that is given up sooner
// than after half a minute.
//
// # GIDs
//
// On RoCE the local GID decides which packets leave. [ChooseGID] ranks the
// table: RoCE v2 before v1, routable before link-local, IPv4 before IPv6, the
// port's own net device before others, the lower index. The [Choice] says why it
// was taken and why each other was not. [ChooseGIDAsNCCL] follows NCCL's rule
// to the letter, for comparing.
//
// # Packet sequence numbers
//
// They start at 0 on both ends unless asked otherwise: NCCL's handshake has no
// field for them. [WithRandomPSN] is for handshakes that carry Info.PSN.
package qp
