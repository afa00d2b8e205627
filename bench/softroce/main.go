// Command softroce measures the RoCE v2 device in user space against plain UDP sockets between two processes on this machine.
//
//	go run ./bench/softroce
//
// # What is compared
//
// Writes of 1 MiB, against a pair of programs that move the same datagrams through ordinary UDP sockets with segmentation by the kernel
// (UDP_SEGMENT and UDP_GRO): as many bytes in each, as many in one system call, the same socket buffers and bytes in flight, an
// acknowledgement for each receive, and the same waiting: look for a while, then sleep. The pair computes one CRC-32 over each datagram
// at either end by hash/crc32, as a RoCE v2 packet has one, or none. It places no bytes: they end where recv(2) put them.
//
// Writes of 8 bytes, against a ping-pong over UDP: both ends poll; both wait, by ibverbs.CQ.Wait, which polls for a moment before it sleeps,
// and in net.UDPConn, which sleeps; and after a pause, in which the other end has gone to sleep in either.
//
// Writes of 8 bytes over one queue pair and by turns over many, with as many in flight.
//
// # Reading the figures
//
// All run in turn in slices of some milliseconds in one pair of processes, each on a processor of its own. On a shared machine absolute
// figures drift by factors; what counts is the ratio of two slices of one round, and of those the median over all rounds with the
// interval in which it lies. The targets are told, not enforced: the exit code is 0 when everything ran and all data was right.
//
// Where both ends poll, all but about 1.1 µs of half a round trip is system calls and the wait for the next look, in either. On a virtual
// machine (Zen 5) where a system call takes 1.2 µs at least, 0.45 µs go by between the post and the system call that sends, and 0.65 µs
// between the one that receives and the program's look at the word. The rest moves in steps, as a word that comes behind a look waits for
// the next one: the UDP ping-pong itself takes 1.27 times as long when each end is 1 µs late. To send by sendto(2), or to look more often
// in a poll, gains nothing; without most ACKs the ratio is 0.04 lower. Run one row alone by its name:
//
//	go run ./bench/softroce --only "both poll" --rounds 100
package main

import (
	"os"

	"github.com/purerdma/purerdma/bench/pair"
)

func main() {
	if pair.Second() {
		os.Exit(second())
	}
	os.Exit((&tool{}).command().Main(os.Args[1:], os.Stdout, os.Stderr))
}
