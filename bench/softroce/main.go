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
// Writes of 8 bytes, against a ping-pong over UDP between the same two addresses: both ends poll; both wait, by ibverbs.CQ.Wait, which polls for a moment before it sleeps,
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
// Where both ends poll, some 0.65 µs of half a round trip are softroce's, on a Zen 5: 0.2 between the post and the system call that sends,
// 0.45 between the one that receives and the program's look at the word. All else is system calls and the wait for the next look, in
// either. How much lateness costs depends on where the two processors are: on a virtual machine the ratio was 1.24 while a cache line's
// round trip took 120 ns, and 1.29 to 1.37 while it took 270 to 550, where the UDP ping-pong itself takes 1.2 times as long once each end
// is 0.3 µs late. To send by sendto(2) gains nothing. Run one row alone by its name:
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
