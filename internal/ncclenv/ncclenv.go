// Package ncclenv is NCCL's environment variables as this module knows them: one table that says what each means, and one way to
// read them, whose errors name the variable. A variable that is empty counts as not set; one that cannot be understood is an error,
// where NCCL would take its default.
package ncclenv

import (
	"fmt"
	"slices"
	"strconv"
	"syscall"
)

// Variable is one of NCCL's variables that this module obeys.
type Variable struct {
	Name    string
	Default string // as NCCL 2.25.1 has it, in words where it is none
	Meaning string
}

// Variables are all that this module obeys, by name.
func Variables() []Variable { return slices.Clone(table) }

var table = []Variable{
	{"NCCL_BUFFSIZE", "4194304", "bytes of the SIMPLE buffer of a connection"},
	{"NCCL_CONNECT_ROUND_MAX_PEERS", "128", "steps of the set-up loop before connections are awaited"},
	{"NCCL_DMABUF_ENABLE", "1", "0: GPU memory is not registered by DMA-BUF"},
	{"NCCL_GDR_FLUSH_DISABLE", "0", "1: what devices wrote into GPU memory is not flushed"},
	{"NCCL_HOSTID", "host name and boot id", "text that stands for the host: ranks with different ones do not share memory"},
	{"NCCL_IB_ADAPTIVE_ROUTING", "-2", "1, 0: the network may reorder packets; -2: on InfiniBand it may"},
	{"NCCL_IB_ADDR_FAMILY", "AF_INET", "AF_INET or AF_INET6: family of the GID that is chosen on RoCE"},
	{"NCCL_IB_ADDR_RANGE", "any", "address/length: the network of the GID that is chosen on RoCE"},
	{"NCCL_IB_AR_THRESHOLD", "8192", "bytes from which on data goes before its immediate data under adaptive routing"},
	{"NCCL_IB_FIFO_TC", "-1", "traffic class of queue pairs that carry credits; -1: as NCCL_IB_TC"},
	{"NCCL_IB_GID_INDEX", "-1", "index of the GID; -1: chosen"},
	{"NCCL_IB_HCA", "all", "devices: names or their beginnings, name:port, = for whole names, ^ for all others"},
	{"NCCL_IB_MQP_RETRY_CNT", "34", "further tries to bring a queue pair to RTR"},
	{"NCCL_IB_MQP_RETRY_SLEEP_MSEC", "100", "milliseconds by which the pause between these tries grows"},
	{"NCCL_IB_PKEY", "0", "index of the partition key"},
	{"NCCL_IB_QPS_PER_CONNECTION", "1", "queue pairs of a connection per device"},
	{"NCCL_IB_RETRY_CNT", "7", "retries of a packet before a queue pair fails"},
	{"NCCL_IB_ROCE_VERSION_NUM", "2", "version of RoCE; here 2 only"},
	{"NCCL_IB_SL", "0", "service level"},
	{"NCCL_IB_SPLIT_DATA_ON_QPS", "0", "1: each message is cut over all queue pairs"},
	{"NCCL_IB_TC", "0", "traffic class"},
	{"NCCL_IB_TIMEOUT", "20", "time to an acknowledgement, 4.096 µs times two to this"},
	{"NCCL_IB_USE_INLINE", "0", "1: credits are posted inline"},
	{"NCCL_LL128_BUFFSIZE", "4915200", "bytes of the LL128 buffer of a connection"},
	{"NCCL_LL_BUFFSIZE", "524288", "bytes of the LL buffer of a connection"},
	{"NCCL_NET_DISABLE_INTRA", "0", "1: no network between ranks of one host"},
	{"NCCL_NET_FORCE_FLUSH", "0", "1: what devices wrote into GPU memory is flushed, also where the GPU needs none"},
	{"NCCL_NET_GDR_LEVEL", "PXB", "greatest distance between a GPU and a device that reaches its memory: LOC, PIX, PXB, PHB, SYS or an old number"},
	{"NCCL_NET_GDR_READ", "-2", "1, 0: devices send from GPU memory or do not; -2: they do from Ampere on, or beside NVLink"},
	{"NCCL_P2P_DISABLE", "0", "1: no GPU memory is shared between ranks"},
	{"NCCL_P2P_LEVEL", "PXB", "greatest distance between GPUs that share memory: LOC, NVL, PIX, PXB, PHB, SYS or an old number"},
	{"NCCL_SHM_DISABLE", "0", "1: no host memory is shared between ranks"},
	{"NCCL_SOCKET_FAMILY", "any", "AF_INET or AF_INET6: family of TCP connections"},
	{"NCCL_SOCKET_IFNAME", "chosen", "interfaces for TCP: beginnings of names, = for whole names, ^ for all others"},
}

// Reader reads variables and keeps the first error.
type Reader struct {
	Getenv func(string) string // os.Getenv
	Wrap   func(name string, err error) error
	err    error
}

// Err is the first error.
func (r *Reader) Err() error { return r.err }

// Fail says that a variable cannot be understood.
func (r *Reader) Fail(name string, err error) {
	if r.err == nil {
		r.err = r.Wrap(name, err)
	}
}

// Refuse says what a variable is and should be.
func (r *Reader) Refuse(name, value, want string) {
	r.Fail(name, fmt.Errorf("is %q, want %s: %w", value, want, syscall.EINVAL))
}

// Text is the variable, "" if it is not set. Asking for one that the table does not have is a mistake of the program.
func (r *Reader) Text(name string) string {
	if !slices.ContainsFunc(table, func(v Variable) bool { return v.Name == name }) {
		panic("ncclenv: " + name + " is not in the table")
	}
	return r.Getenv(name)
}

// Number gives the variable to set, if there is one.
func (r *Reader) Number(name string, least, most int, set func(int)) {
	s := r.Text(name)
	if s == "" {
		return
	}
	n, err := strconv.ParseInt(s, 0, 64)
	if err != nil || n < int64(least) || n > int64(most) {
		r.Refuse(name, s, fmt.Sprintf("a number from %d to %d", least, most))
		return
	}
	set(int(n))
}

// Flag gives 0 or 1 to set, if the variable is set.
func (r *Reader) Flag(name string, set func(bool)) {
	r.Number(name, 0, 1, func(n int) { set(n == 1) })
}
