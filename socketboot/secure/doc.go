// Package secure authenticates the TCP connections of package socketboot: each of its functions gives a value for
// socketboot.Net's Secure, with which the handshake of the net transport, the root of a job and all connections among its ranks
// work the same as without. Without one, their bytes are NCCL's and anybody who can reach a port can speak; with one, a plain peer
// is refused, and so is a secured one at a plain end.
//
// # What each defends
//
//	          strangers, other jobs   changed or repeated bytes   reading along
//	plain     no                      no                          no
//	[Key]     yes                     yes                         no
//	[TLS]     yes                     yes                         yes
//
// RDMA traffic itself is not defended by either: whoever is on the RoCE network can send packets.
//
// # Key
//
// Both ends have one secret key of 32 bytes or more. All numbers are little-endian.
//
//	client to server  "prdma-k1", nonce (32)
//	server to client  "prdma-k1", nonce (32), proof (32)
//	client to server  proof (32)
//	then, both ways   length (4, 1 to 16384), data, tag (32)
//
// A proof is HMAC-SHA-256 with the key over "server" or "client" and all bytes before it, both nonces included, so that no recording
// and no reflection of it serves. Each direction has a key of its own, HMAC over its name and the whole handshake; a tag is
// HMAC with that key over the record's number (8), length and data, and a last record of length 0 tells the end, so that nothing
// can be changed, repeated, left out or cut off.
package secure
