// Package softroce is a RoCE v2 device in user space. It needs no adapter, no
// kernel module and no rights: where a UDP socket can be bound, RDMA works, between
// the processes of a machine and with adapters and the kernel's Soft-RoCE elsewhere.
//
//	import _ "github.com/purerdma/purerdma/ibverbs/softroce"
//
// adds soft0 and soft1 to what ibverbs.Devices lists, behind hardware. Each takes a
// free address of loopback when it is opened, so that two processes on one machine
// reach each other. To reach another machine give both the addresses that they have
// on their network, before the programs start:
//
//	PURERDMA_SOFTROCE_ADDRS=192.0.2.1      # soft0; several, with commas, are soft0, soft1, …
//
// Only one process at a time has an address, with all its devices on it. New makes
// devices with addresses of one's own too, for ibverbs.WithDrivers.
//
// # What it has
//
// Reliable connections with all operations: SEND, WRITE, both with immediate data,
// SEND_WITH_INV, READ, FETCH_ADD and CMP_SWP, inline data, gather and scatter;
// memory windows of type 2; shared receive queues; completion channels with
// solicited events; asynchronous events. Unreliable connections (UC) with SEND, WRITE
// and windows; datagrams (UD) with address handles, but no multicast. Probe of a
// context says what is missing.
//
// # How it works
//
// A post sends in the caller's goroutine as much as the window to the peer allows.
// One goroutine of each open device takes the packets that come; what it cannot
// finish at once, long answers to reads and sending that waited for the window, a
// second goroutine does. No goroutine ever waits for a peer. Queue pairs share
// nothing but the window to a peer, their CQs and SRQs.
//
// On sockets, a poll of a CQ that finds nothing looks at the socket itself, so that
// goroutines that spin on every processor keep nobody from taking packets, and an
// answer that is polled for wakes no thread. Such a poll is a system call. Who
// polls memory that a peer writes should poll a CQ as well. An ACK of a write that
// a poll took waits up to 0.1 ms for a request to go with. Where two programs that poll
// answer each other's writes, it then stays behind the request and stands for up to 8
// writes, as long as the peer goes on without it: it goes out after 16 more polls,
// 0.1 to 0.2 ms after the program has stopped to poll, when the requests of this end have
// all completed, or when the queue pair is closed. Where the local ACK time-out is
// below 1 ms none stays behind.
//
// Lost packets are sent again from the one that is missing on (go-back-N). A peer
// that is silent ends a connection after RetryCnt+1 time-outs of
// 4.096 µs × 2^Timeout since its last sign of life; retry count 7 is seven.
//
// A receive of an SRQ frees its place when a message takes it. A limit that is set
// when fewer receives are left raises its event at once.
//
// A message can invalidate only a memory window that is bound to the queue pair which
// it comes to. With another key its receive ends in error, and the queue pair with
// it, without a NAK: the peer's message counts as sent, what it sends next is not
// answered.
//
// # Unreliable transports
//
// Requests of UC and UD complete when the link has their packets. Nothing holds them
// to the pace of the peer: a socket there that is full loses them, and a long message
// of UC is lost with any packet of it. What is delivered is whole and in order. A
// receive that was taken for a message which then got lost serves the next; it holds
// parts of the first until then. A request that fails here (a bad key, a datagram
// above the port's MTU, an address handle that was closed) takes the send queue to
// SQE: it flushes what follows, and the queue pair receives on until Modify puts it
// back into RTS.
//
// In front of a datagram are 40 bytes of header, on IPv4 nothing in 20 bytes and
// then the IPv4 header. Sockets show no headers, so they are made again: real are
// the addresses, traffic class with ECN, lengths, protocol and the Identification,
// which the ICRC tells. Flags DF, time to live or hop limit 64 and flow label 0 are
// what senders mostly put there; the IPv4 checksum is right for all that.
//
// With Config.ECN connections slow down where the network marks their packets,
// before it loses them.
//
// # Counters
//
// ibverbs.Context.Counters tells what became of packets, under the names of the
// kernel's Soft-RoCE where it counts the same. Each packet that came is in
// rcvd_pkts, and dropped for one reason at most:
//
//	rcvd_malformed_err   no RoCE v2 packet, or one for another kind of queue pair
//	rcvd_icrc_err        damaged
//	rcvd_pkey_err        another partition
//	rcvd_qkey_err        a datagram with another Q_Key
//	rcvd_unknown_qp      no such queue pair
//	rcvd_wrong_peer      not from the peer of its queue pair
//	rcvd_wrong_state     a request to a queue pair that is not ready
//	rcvd_stale_answer    an answer to nothing that is under way
//	out_of_seq_request   a request behind a gap
//	duplicate_request    a request that was executed before
//
// rcvd_buffer_drops did not come that far: the socket had no room. Messages of UC
// and datagrams that were thrown away are dropped_messages: a part of them was lost,
// there was no receive or too short a one, or the key did not give the right to
// write. NAKs sent are
// send_rnr_err, send_inv_req_err, send_access_err and send_op_err; those received
// rcvd_rnr_err and rcvd_seq_err. Rounds of retransmission are completer_retry_err,
// of which local_ack_timeout_err began by the timer; connections that ended,
// retry_exceeded_err, retry_rnr_exceeded_err and bad_response_err.
//
// With Config.ECN, np_ecn_marked_roce_packets came with congestion experienced and
// np_cnp_sent notifications answered them; rp_cnp_handled came from peers.
// rp_cnp_ignored came without it.
//
// # What it protects
//
// Keys and QP numbers are random. Each remote access is checked against the key,
// its protection domain, its rights and bounds, and the rights of the queue pair;
// packets that do not come from the queue pair's peer are dropped. RoCE has no
// authentication: who can forge packets on the network can do what the peer could.
// The checksum of packets (ICRC) protects against damage, not against people; on
// IPv4 a UDP socket sees 16 bits less of it than there are. OnPacketSockets, or
// PURERDMA_SOFTROCE_LINK=packet in the environment, sees all of it and wants
// CAP_NET_RAW.
//
// Memory that was unmapped or truncated under a registration fails the request, not
// the process.
package softroce
