package transport

import (
	"context"
	"fmt"
	"syscall"

	"github.com/purerdma/purerdma/gpu"
)

// GPUMemory is memory of a GPU, from which a message is sent or into which one is received: Bytes bytes at Ptr, which Context's GPU
// reaches. What the program's streams do there is not waited for: all must be done before the call, and none begin before its end.
type GPUMemory struct {
	Context gpu.Context
	Ptr     gpu.Ptr
	Bytes   int
}

var errNoGPUMemory = fmt.Errorf("a GPUMemory needs a context and a size of 0 or more: %w", syscall.EINVAL)

func (m GPUMemory) span() (span, error) {
	if m.Context == nil || m.Bytes < 0 {
		return span{}, errNoGPUMemory
	}
	return span{c: m.Context, p: m.Ptr, n: m.Bytes}, nil
}

// SendGPU is [Communicator.Send] of memory of a GPU. The peer may receive it into either kind of memory, from a GPU of its own or none.
//
// Copies of the GPU, for which the call waits, move the bytes between that memory and the connection's: the peer's GPU memory over P2P, the
// host's over SHM, over NET the GPU's where the NIC reaches that. Over P2P it returns when the peer has the message.
func (c *Communicator) SendGPU(ctx context.Context, peer int, m GPUMemory) error {
	k := [1]*call{c.newGPUCall(true, peer, m)}
	drive(ctx, k[:])
	_, err := k[0].end(c, "send to", peer)
	return err
}

// RecvGPU is [Communicator.Recv] into memory of a GPU, likewise. The bytes are there when it returns.
func (c *Communicator) RecvGPU(ctx context.Context, peer int, m GPUMemory) (int, error) {
	k := [1]*call{c.newGPUCall(false, peer, m)}
	drive(ctx, k[:])
	return k[0].end(c, "receive from", peer)
}

func (c *Communicator) newGPUCall(send bool, peer int, m GPUMemory) *call {
	b, err := m.span()
	if err != nil {
		return refused(send, err)
	}
	return c.newCall(send, peer, b)
}

// refused is a call that is over.
func refused(send bool, err error) *call {
	k := calls.Get().(*call)
	k.reset(send, span{}, 0)
	k.err = err
	return k
}

// SendGPU adds memory of a GPU for a rank, as [Group.Send] does.
func (g *Group) SendGPU(peer int, m GPUMemory) int { return g.addGPU(true, peer, m) }

// RecvGPU adds memory of a GPU for the next message of a rank, as [Group.Recv] does.
func (g *Group) RecvGPU(peer int, m GPUMemory) int { return g.addGPU(false, peer, m) }

func (g *Group) addGPU(send bool, peer int, m GPUMemory) int {
	b, err := m.span()
	return g.add(member{send: send, peer: peer, b: b, err: err})
}
