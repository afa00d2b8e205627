// Package link moves RoCE v2 packets: through UDP sockets, through packet sockets,
// which see them whole, or through a network in memory that loses, doubles,
// reorders and damages them by a seed.
//
// # What moves
//
// A [Datagrams] is one or more UDP payloads of equal size for one peer, in one
// buffer. UDP sockets on Linux hand all of them to the kernel at once (UDP GSO)
// and get as many at once (UDP GRO), which is where the speed comes from: 62
// packets of path MTU 1024 a call are 1.7 times as fast as 16. So a message
// goes as its first packet alone, whose header is longer, and then in runs of
// equal packets.
//
// # The Identification
//
// The IPv4 Identification is inside the ICRC. On every link segment k of a
// Datagrams that is sent has Identification k, and is sealed for it. Of what
// comes, [Datagrams.ID] and [Link.ShowsID] say whether the link knows it:
// package wire has an exact check for links that do, and one that recovers it
// for those that do not.
//
// # Who may call
//
// Send may be called by several goroutines at once; packets of one call keep
// their order. Recv and TryRecv are for one goroutine at a time. Close may come
// at any time, from any goroutine, and ends a Recv that waits.
//
// # Who owns what
//
// The caller of Send has the Datagrams and their bytes back when it returns;
// until then the link may change the ICRC of packets in them. What Recv filled
// in belongs to the link and is valid until the next Recv, TryRecv or Close.
//
// # Loss
//
// A link loses packets as a network does, and reports no error for it. An error
// is about the link as a whole, or says that a peer cannot be reached from here
// at all.
package link
