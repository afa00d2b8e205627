// Package bootstrap lets the ranks of a job meet and talk before there is any faster way: a ring of TCP connections for what all
// tell all, and messages between any two.
//
// # Meeting
//
// A [Root] listens; its 128-byte [ID], NCCL's ncclUniqueId, reaches every rank by other means (package launch). Each rank calls
// [Join]: it tells the root where it listens, learns the address of the next rank, connects to it and accepts the one before.
// The root may be one of the ranks' processes or any other, and is not needed after that.
//
// # Bytes
//
// They are those of NCCL 2.25.1, little-endian. Each connection begins with the magic of the job (8) and socket type 1 (4). Then:
//
//	rank to root          length 172, then rank, nranks, iroot = 0, nroots = 1 (4 each), address where this rank awaits
//	                      the root (28), address of its ring listener (128, 28 of them used)
//	root to rank          on a new connection: length 128, then the ring address of the next rank
//	ring                  for each step of an all-gather: length, slice
//	message               on a new connection: length 8, then rank, tag (4 each); length, payload
//
// A length of -1 is never sent by NCCL. Here it begins a notice, which travels over the ring in both directions, or comes from the
// root in place of an address: rank (4), kind (4: 0 left, 1 died, 2 aborted, 3 absent), number of all-gathers that a rank which
// left took part in (8), length of a text (4, at most 1024), the text.
//
// Nor does NCCL send -2 and -3. A root says -2 on the connection on which a rank has reported, and holds it; a rank that sees it, which
// NCCL's do not, says it back. From then on the end of this connection is the end of the rank, or of the root, until the root has
// answered on the other and says -3. A rank that gives up says so by a notice.
//
// # Failures
//
// A rank that dies, or gives up, while others have yet to come ends the meeting: the root names it to those that have come. That of a
// rank which has not reported is not seen by the root, but by whoever has started it: [Root.Fail]. The death of the root is ErrNoRoot.
//
// A rank that dies later, or calls [Job.Abort], is named to all others: its neighbours on the ring notice (at once when its process
// ends; when its host vanishes, after 20 s) and spread the word, and from then on every wait of every rank fails with
// a [RankError]. A rank that calls Close has left: only what needs that rank fails. Every wait ends with its context.
//
// # Deviations from NCCL
//
// A message counts as sent when the receiver has it: the sender waits for the receiver to close the connection, which NCCL's does
// too. A barrier is an all-gather of nothing. The root answers when all ranks have come, not one after the other. Lengths, ranks
// and the memory for messages that nobody has asked for are bounded by [Limits]. socketboot.Net's Secure adds authentication,
// package secure has two kinds; without it the bytes are plain.
package bootstrap
