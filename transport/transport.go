// Package transport connects the ranks of a job: for each peer the first of P2P, SHM, NET and CollNet that can, set up in the order of
// NCCL 2.25.1, and says why it was that one.
//
// A rank joins a job (socketboot/bootstrap) and makes a [Communicator] of it. [Communicator.Connect] sets up the connections that [Links]
// names, at all ranks together, after which each has its [Connector]s:
//
//	comm, err := transport.New(ctx, transport.Config{Job: job, Transports: transports, Channels: 2})
//	err = comm.Connect(ctx, transport.Ring(job.Rank(), job.Size(), 2))
//	next := comm.Connector(transport.End{Peer: 1, Channel: 0, Send: true}).Conn()
//
// What goes through a connection's buffers is the program's affair, or this package's, which moves messages of bytes between the memories
// of processors: [Communicator.Send], [Communicator.Recv], [Communicator.SendRecv], which any goroutine may call.
//
//	err = comm.Connect(ctx, transport.Pairs(job.Rank(), job.Size(), 2))
//	err = comm.Send(ctx, 1, []byte("hello"))
//
// [Communicator.SendGPU] and [Communicator.RecvGPU] take memory of GPUs.
//
// A [Group] is several with any ranks at once; [Communicator.Acquire] and [Communicator.Next] make and read them in the connection's memory.
//
// # The loop
//
// In step i a rank receives from rank − i and sends to rank + i. It lets the chosen transport set up its ends, channel by channel, those
// that receive first; sends the 256-byte blobs of its receiving ends to rank − i and those of its sending ends to rank + i; and takes
// theirs. Where both peers are the same rank it is one message each way, and what comes first in the peer's is what it receives,
// so what this rank sends. After 128 steps, or the last, all ends of these steps are connected, polled in turn, before the next batch
// begins. Then every rank tells each of its peers that it has finished, since a fast one might free what a slow one has still to map.
//
// # Messages
//
// Messages take the connections of index 0, on all channels that the first Connect for a pair has connected: the ring of a transport that
// has one for processors (SHM), else SIMPLE in NCCL's layout, with the proxies moved by the calls that wait. Message number k of a pair
// begins on channel k modulo their number, with its size; one of more than 64 KiB is divided into equal parts of at least that, multiples of
// 128 bytes but for the last, on as many of the channels that follow. A connection whose buffers the program uses itself, or
// gives to an [Engine], must not carry messages, too.
//
// While there is no call nothing runs. A call that waits over SHM, alone, sleeps until the peer wakes it; over a network, where it is
// the call that moves the data, and where it waits for several things, it looks, yields, and sleeps for up to a millisecond between looks.
//
// # Where it is more than NCCL's
//
// Before the loop all ranks compare what they mean to connect: a channel for which only one end has a mask is an error at
// every rank that names both ends, and not a hang. Blobs travel with the transport that was chosen for them: where the ends
// differ both take the later one, and say so. When a rank fails, in whatever way, it tells its peers in place of the blobs; nobody waits
// in vain; at the end all ranks vote, and unless all have succeeded every rank closes what this call has made. Then Connect can be called again.
// A rank that dies is named by the job to all.
package transport

import "github.com/purerdma/purerdma/transport/driver"

type (
	// PeerInfo is what every rank knows of every rank.
	PeerInfo = driver.PeerInfo
	// Transport is one way of moving data between ranks.
	Transport = driver.Transport
	// Connector is one direction of one channel to one peer.
	Connector = driver.Connector
	// Conn is where the data of one direction goes.
	Conn = driver.Conn
	// Verdict answers whether a transport can connect two ranks.
	Verdict = driver.Verdict
	// Blob is what one end of a connection tells the other.
	Blob = driver.Blob
	// Protocol is how data and its arrival are told apart in a buffer.
	Protocol = driver.Protocol
)

// The protocols, numbered as in NCCL.
const (
	LL     = driver.LL
	LL128  = driver.LL128
	Simple = driver.Simple
)
