package p2ptransport

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/purerdma/purerdma/gpu"
	"github.com/purerdma/purerdma/transport/driver"
)

// kind is how a piece of GPU memory is shared with another process.
type kind uint32

const (
	none       kind = iota
	descriptor      // CUMEM
	legacy          // IPC
)

// offer is what one end tells the other of its piece, where NCCL's p2pConnectInfo
// has it, as far as it has: bytes 0 to 191. Where NCCL has the address a token is.
//
//	0   i32 rank            88  u32 kind
//	4   i32 read            92  u32 1 = the owner shares its GPU by MPS
//	8   u64 token           96  16 bytes UUID of the GPU
//	16  u64 size            192 64 bytes name of the owner's socket, zero-padded
//	24  64 bytes handle of kind IPC
type offer struct {
	rank   int
	read   bool
	token  uint64
	size   int
	kind   kind
	mps    bool
	handle gpu.IPCHandle
	gpu    [16]byte
	socket string
}

// socketName bounds the name of the owner's socket.
const socketName = driver.BlobSize - 192

func (o *offer) encode(b *driver.Blob) {
	le := binary.LittleEndian
	le.PutUint32(b[0:], uint32(o.rank))
	if o.read {
		le.PutUint32(b[4:], 1)
	}
	le.PutUint64(b[8:], o.token)
	le.PutUint64(b[16:], uint64(o.size))
	copy(b[24:88], o.handle[:])
	le.PutUint32(b[88:], uint32(o.kind))
	if o.mps {
		le.PutUint32(b[92:], 1)
	}
	copy(b[96:112], o.gpu[:])
	copy(b[192:], o.socket)
}

var errBlob = errors.New("implausible connection info")

// decodeOffer checks what the peer's Setup filled in: size bytes on the GPU at.
func decodeOffer(b *driver.Blob, peer *driver.PeerInfo, size int, at [16]byte) (o offer, err error) {
	le := binary.LittleEndian
	o = offer{rank: int(int32(le.Uint32(b[0:]))), read: le.Uint32(b[4:]) == 1, token: le.Uint64(b[8:]), size: int(le.Uint64(b[16:])),
		kind: kind(le.Uint32(b[88:])), mps: le.Uint32(b[92:]) == 1, handle: gpu.IPCHandle(b[24:88]), gpu: [16]byte(b[96:112])}
	n := 192
	for n < len(b) && b[n] != 0 {
		n++
	}
	o.socket = string(b[192:n])
	bad := func(field string, got, want any) error {
		return fmt.Errorf("%w of rank %d: %s is %v, want %v", errBlob, peer.Rank, field, got, want)
	}
	switch {
	case o.rank != peer.Rank:
		return o, bad("rank", o.rank, peer.Rank)
	case le.Uint32(b[4:]) > 1:
		return o, bad("read", le.Uint32(b[4:]), "0 or 1")
	case o.kind > legacy:
		return o, bad("kind", o.kind, "0 to 2")
	case le.Uint32(b[92:]) > 1:
		return o, bad("MPS", le.Uint32(b[92:]), "0 or 1")
	case o.size != size:
		return o, bad("size", o.size, size)
	case o.gpu != at:
		return o, bad("GPU", fmt.Sprintf("%x", o.gpu), fmt.Sprintf("%x", at))
	}
	return o, nil
}
