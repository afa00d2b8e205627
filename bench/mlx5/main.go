// Command mlx5 compares what posting and polling cost in user space by our driver of ConnectX adapters and by libmlx5, on the
// memory of the same model of an adapter.
//
//	go run ./bench/mlx5
//
// # What is compared
//
// A post is ibverbs.QP.PostSend against ibv_post_send, of a list of RDMA writes of 64 bytes, each signaled; a poll is ibverbs.CQ.Poll
// against ibv_poll_cq, of as many completions. The adapter sleeps: the queue is filled, then the program itself writes the completions
// that an adapter would write, and then takes them. So a doorbell is a store into memory, and nobody else runs meanwhile. The third
// side is the second one through cgo: a Go program that calls ibv_post_send and ibv_poll_cq once for each list, which it has made
// in C beforehand.
//
// # Reading the figures
//
// All run by turns, in processes of their own. A figure is the median of sections of 256 requests, and what counts is the ratio of two
// figures of one round, of those the median over all rounds with the interval in which it lies. The targets are told, not enforced: the
// exit code is 0 when everything ran and all completions were right.
//
// It needs the go command, the sources of the module, a C compiler and rdma-core's headers (gcc, libibverbs-dev).
package main

import "os"

func main() { os.Exit((&tool{}).command().Main(os.Args[1:], os.Stdout, os.Stderr)) }
