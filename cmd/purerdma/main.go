// Command purerdma shows what RDMA devices a machine has and what hinders them.
//
//	purerdma devices          the devices and their ports
//	purerdma devices -v       all that is known of each, as ibv_devinfo -v and show_gids tell it
//	purerdma topo             how NICs and GPUs reach each other
//	purerdma doctor           what people trip over, and what to do
//	purerdma monitor          events of ports and devices, and counters, as they come
//	purerdma variables        the variables of NCCL that are obeyed
//	purerdma completion bash  a script that completes commands and names of devices in a shell
//
// Each takes --json: standard output then has one JSON document whichever way the command ends, and everything for people goes to
// standard error. The exit code is 0 for success, 1 for failure (doctor: something hinders RDMA), 2 for wrong usage.
package main

import (
	"os"

	_ "github.com/purerdma/purerdma/ibverbs/softroce" // where there is no adapter
)

func main() { os.Exit((&tool{}).command().Main(os.Args[1:], os.Stdout, os.Stderr)) }
