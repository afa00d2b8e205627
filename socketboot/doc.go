// Package socketboot is everything that two ends say to each other on TCP before they speak RDMA: the handshake of NCCL's
// net_ib transport, byte for byte.
//
// # Two ends
//
// The connector will send data, the acceptor will receive it. The acceptor's [Listener] gives out a 128-byte [Handle]; the
// connector gets it by other means (NCCL's core passes it on) and connects. Then, always in this order:
//
//	#  direction  bytes                     content
//	1  C -> A     8                         magic, from the handle
//	2  C -> A     4                         socket type, 4 = NetIb
//	3  C -> A     20 (37 from 2.30.3)       the connector's device list
//	4  A -> C     20 (37 from 2.30.3)       the acceptor's device list
//	5  C -> A     3576 (by layout)          the connector's metadata; its QPs are in INIT
//	6  A -> C     3576 (by layout)          the acceptor's metadata; its QPs are in RTS
//	7  C -> A     4                         ready = 1; the connector's QPs are in RTS
//
// Nobody speaks out of turn, so a byte that arrives out of turn is an error. After ready the connection stays open and
// silent for the life of the RDMA connection. There is no goodbye: an end of file means that the peer closed or died.
//
// # Bytes
//
// All numbers are little-endian, as the memory of every machine that NCCL runs on; TCP port, IP address and GID are in
// network order. Padding is sent as zero and not looked at. The handle, of which net_ib uses 64 bytes:
//
//	off  size  field
//	0    2     address family: 2 = IPv4, 10 = IPv6
//	2    2     port, network order
//	4    4     IPv4 address; flow information for IPv6
//	8    16    IPv6 address
//	24   4     scope identifier of the listener's host
//	32   8     magic
//	40   24    the connector's private state, 0 when handed out
//	64   64    0; from 2.30.7 on up to two GIDs, a hint that may be 0
//
// The device list is a count and the sender's own numbers for its devices (4, or 8 from 2.30.3 on), four bytes each; from
// 2.30.3 on one byte follows that says whether the devices can receive out of order. The metadata:
//
//	field          size           2.25.1   2.26.2   2.27.3   2.29.7   2.30.3
//	qpInfo[128]    24 each        0        0        0        0        0
//	resiliency     24 each                                   3072 x4  3072 x16
//	devs[4 or 8]   56 each        3072     3072     3072     3168     3456
//	devName        260, 324, 648  3296     3296     3296     3392     3904
//	fifoAddr       8              3560     3560     3624     3720     4552
//	ndevs          4              3568     3568     3632     3728     4560
//	tc             4                       3572     3636     3732     4564
//	sl             4                       3576     3640     3736     4568
//	length                        3576     3584     3648     3744     4576
//
//	qpInfo: qpn @0, ece.vendor_id @4, ece.options @8, ece.comp_mask @12, ece_supported @16, devIndex @20
//	devs:   lid @0, ib_port @4 (1 byte), mtu @8, link_layer @12 (1 byte), gid @16, fifoRkey @32, a GID the sender leaves 0 @40
//
// A [Layout] names the bytes of a range of NCCL versions. NCCL checks no version on this connection; a peer of another
// layout is recognised as far as its bytes show it, and the [HandshakeError] says which layout they look like.
//
// # Machine
//
// A [Machine] is one end of one handshake without I/O: bytes in, bytes out. Whoever feeds it decides about blocking, so one
// machine runs under a fuzzer, in a virtual network, polled with [Machine.Step] or blocking with [Machine.Run]. What it needs
// from its owner, the queue pairs, it asks through [ConnectorLocal] or [AcceptorLocal].
//
// # Hostile peers
//
// The port is open to all who can reach it, and NCCL's magic is a public constant. Every field is checked before use, every
// wait has a deadline, a listener runs each handshake in a goroutine of its own and bounds their number; what fails is dropped
// and told to [Net.Dropped], and neither the listener nor another connection notices. There is no authentication unless
// [Net.Secure] adds it.
package socketboot
