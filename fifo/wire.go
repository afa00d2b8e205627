package fifo

import "structs"

// offer4 is NCCL's struct ncclIbSendFifo with 4 keys, in host byte order.
type offer4 struct {
	_     structs.HostLayout
	Addr  uint64
	Size  uint64
	RKeys [4]uint32
	NReqs uint32
	Tag   uint32
	Idx   uint64
	_     [16]byte
}

// offer8 is the same with 8 keys, from NCCL 2.30 on.
type offer8 struct {
	_     structs.HostLayout
	Addr  uint64
	Size  uint64
	RKeys [8]uint32
	NReqs uint32
	Tag   uint32
	Idx   uint64
}

// sizes is a row of sizes: int[8].
type sizes struct {
	_     structs.HostLayout
	Bytes [MaxRecvs]int32
}

// record is NCCL's struct ncclIbRequestCompletionRecord, from 2.29.7 on. The
// flags are what its port failover reads: this end leaves them 0, not done.
type record struct {
	_     structs.HostLayout
	Bytes [MaxRecvs]int32
	Done  [128]uint8
}
