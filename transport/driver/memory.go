package driver

import (
	"structs"

	"github.com/purerdma/purerdma/gpu"
	"github.com/purerdma/purerdma/mr"
)

// Steps is how many steps a connection's buffers hold: NCCL_STEPS. Step s lies in slot s % Steps.
const Steps = 8

// Protocol is how data and its arrival are told apart in a buffer.
type Protocol uint8

// The protocols, numbered as in NCCL.
const (
	LL        Protocol = iota // lines of 16 bytes: twice 4 bytes of data and a flag
	LL128                     // lines of 128 bytes: 120 of data and a flag; only where such a store is never torn
	Simple                    // data, then a counter
	Protocols = 3
)

func (p Protocol) String() string {
	if p < Protocols {
		return [Protocols]string{"LL", "LL128", "SIMPLE"}[p]
	}
	return "unknown protocol"
}

// DefaultBuffers is what NCCL allocates when NCCL_LL_BUFFSIZE, NCCL_LL128_BUFFSIZE and NCCL_BUFFSIZE are not set.
var DefaultBuffers = [Protocols]int{LL: 512 << 10, LL128: 4800 << 10, Simple: 4 << 20}

// Conn is where the data of one direction goes: NCCL's ncclConnInfo. The consumer writes Head of SendMem, the number of steps it
// has consumed; the producer writes Tail of RecvMem, the number it has produced, and is never more than [Steps] ahead. Both only
// grow. Memory that another process maps may hold anything: read once, check, then use.
type Conn struct {
	SendMem *mr.Buffer // a [SendMem], the producer's
	RecvMem *mr.Buffer // a [RecvMem], the consumer's
	// Buffers are the data buffers by [Protocol], each of [Steps] equal steps; nil where there is none, or where it is GPU memory.
	Buffers [Protocols]*mr.Buffer
	// FIFO tells that sizes of steps go through RecvMem's ConnFIFO, because a proxy needs them.
	FIFO bool
	// GPU is the connection as this rank's GPU addresses it, where its kernels or copies move the data; nil without one. The fields
	// above are nil where the connection is in the memory of GPUs alone.
	GPU *GPUConn
}

// GPUConn is a connection as this end's GPU addresses it, in the memory of GPUs or in host memory that it reaches.
type GPUConn struct {
	Context gpu.Context // this end's GPU; the rank's, not the connection's
	Head    gpu.Ptr     // in SendMem: the number of steps consumed
	Tail    gpu.Ptr     // in RecvMem: the number of steps produced
	FIFO    gpu.Ptr     // RecvMem's ConnFIFO where a proxy needs the sizes of steps, else 0
	// Buffers are the data buffers by [Protocol], 0 where there is none, and Steps the bytes of a step of each.
	Buffers [Protocols]gpu.Ptr
	Steps   [Protocols]int
	// NoKernels is why kernels at the two ends must not wait for each other, "" where they may: copies move the data then, and the
	// processors tell each other what is done.
	NoKernels string
	// Read tells that Simple's buffer is the sender's, from which the receiver fetches.
	Read bool
}

// SendMem is NCCL's ncclSendMem, 4096 bytes.
type SendMem struct {
	_                structs.HostLayout
	Head             uint64
	_                [120]byte
	PtrExchange      uint64
	RedOpArgExchange [2]uint64
	_                [104]byte
	OffsFIFO         [Steps]int32
	_                [3808]byte
}

// RecvMem is NCCL's ncclRecvMem, 4096 bytes.
type RecvMem struct {
	_        structs.HostLayout
	Tail     uint64
	_        [120]byte
	ConnFIFO [Steps]ConnFIFO
	Flush    int32
	_        [3772]byte
}

// ConnFIFO is a slot of [RecvMem]: NCCL's ncclConnFifo, 24 bytes.
type ConnFIFO struct {
	_      structs.HostLayout
	Mode   int32 // FIFONormal, FIFOOffset, FIFOPtr
	Offset int32 // of the data in the buffer, in mode FIFOOffset
	Size   int64 // of the data in bytes; -1 = none yet
	Ptr    uint64
}

// Modes of a [ConnFIFO].
const (
	FIFONormal = 0 // the data lies in the step's place
	FIFOOffset = 1 // it lies at Offset
	FIFOPtr    = 2 // it lies at Ptr
)
