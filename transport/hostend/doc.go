// Package hostend is the processor's end of a connection whose other end is a GPU's: producer and consumer of NCCL's protocols LL and
// SIMPLE in memory of the host, byte for byte, against the kernels of gpu/kernels or NCCL's own. SHM with a GPU at one end gives such
// connections (shmtransport.Config.GPU).
//
// LL is for short messages: lines of 16 bytes, each half 4 bytes of data and a flag, which is the step's number plus 1. A line is there when
// both flags are. SIMPLE is for long ones: data in a slot, then the counter. LL128 is not for this memory: its lines of 128 bytes must
// never be torn, which stores across PCI are; NCCL uses it over NVLink alone.
//
// Both ends must know protocol and size: nothing of either travels.
//
// The memory is the peer's too and trusted for nothing: counters are checked, and a slot is the connector's whatever they say.
package hostend
