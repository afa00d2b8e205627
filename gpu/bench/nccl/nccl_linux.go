// Package nccl is NCCL's send and receive, from a libnccl that is there at run time, for benchmarks to compare with. It needs no cgo.
package nccl

import (
	"encoding/binary"
	"errors"
	"fmt"
	"sync"

	"github.com/ebitengine/purego"

	"github.com/purerdma/purerdma/gpu"
	"github.com/purerdma/purerdma/internal/offheap"
)

// IDSize is the bytes of an id by which ranks meet (ncclUniqueId).
const IDSize = 128

// Library is a libnccl. Any goroutine may use it.
type Library struct {
	functions [symbols]uintptr

	mu   sync.Mutex // of what the library writes during a call
	room offheap.Span
}

type symbol int

const (
	getVersion symbol = iota
	getUniqueID
	commInitRankScalable
	commDestroy
	groupStart
	groupEnd
	send
	recv
	symbols
)

var names = [symbols]string{"ncclGetVersion", "ncclGetUniqueId", "ncclCommInitRankScalable", "ncclCommDestroy", "ncclGroupStart", "ncclGroupEnd",
	"ncclSend", "ncclRecv"}

// Open loads the library at path, or "libnccl.so.2" where the loader finds it. It switches NVLink multicast off (NCCL_NVLS_ENABLE=0),
// whatever the environment says: send and receive do not use it, and it can put the GPUs of a shared host out of service.
// Versions before 2.23 lack a call that this package needs, and are refused.
func Open(path string) (*Library, error) {
	handle, err := purego.Dlopen(path, purego.RTLD_NOW|purego.RTLD_LOCAL)
	if err != nil {
		return nil, fmt.Errorf("load NCCL: %w; name its libnccl.so.2, which PyTorch has in site-packages/nvidia/nccl/lib", err)
	}
	l := &Library{}
	for s, name := range names {
		if l.functions[s], err = purego.Dlsym(handle, name); err != nil {
			return nil, fmt.Errorf("%s has no %s, which NCCL has since 2.23: %w", path, name, err)
		}
	}
	if l.room, err = offheap.Map(roomSize, offheap.Options{}); err != nil {
		return nil, err
	}
	return l, l.setenv("NCCL_NVLS_ENABLE", "0")
}

// Where things lie in the room: a result, an id, two texts.
const (
	resultAt = 0
	idAt     = 64
	nameAt   = 256
	valueAt  = 512
	roomSize = 4096
)

// Setenv sets a variable as NCCL reads it. What it has read once stays.
func (l *Library) Setenv(name, value string) error { return l.setenv(name, value) }

func (l *Library) setenv(name, value string) error {
	if len(name) >= valueAt-nameAt || len(value) >= roomSize-valueAt {
		return fmt.Errorf("variable %.20q: name or value is too long", name)
	}
	f, err := purego.Dlsym(purego.RTLD_DEFAULT, "setenv")
	if err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	b := l.room.Bytes()
	clear(b[nameAt:])
	copy(b[nameAt:], name)
	copy(b[valueAt:], value)
	const replace = 1
	if r, _, _ := purego.SyscallN(f, l.at(nameAt), l.at(valueAt), replace); int32(r) != 0 {
		return fmt.Errorf("setenv %s: result %d", name, int32(r))
	}
	return nil
}

func (l *Library) at(off int) uintptr { return uintptr(l.room.Addr()) + uintptr(off) }

func (l *Library) call(s symbol, args ...uintptr) error {
	r, _, _ := purego.SyscallN(l.functions[s], args...)
	return failure(names[s], int(int32(r)))
}

// failure is the error of a result (ncclResult_t).
func failure(call string, code int) error {
	words := [...]string{1: "ncclUnhandledCudaError", "ncclSystemError", "ncclInternalError", "ncclInvalidArgument", "ncclInvalidUsage",
		"ncclRemoteError", "ncclInProgress"}
	switch {
	case code == 0:
		return nil
	case code > 0 && code < len(words):
		return fmt.Errorf("%s: %s (%d); NCCL_DEBUG=WARN says more", call, words[code], code)
	}
	return fmt.Errorf("%s: result %d; NCCL_DEBUG=WARN says more", call, code)
}

// Version is 22809 for 2.28.9.
func (l *Library) Version() (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	err := l.call(getVersion, l.at(resultAt))
	return int(int32(binary.NativeEndian.Uint32(l.room.Bytes()[resultAt:]))), err
}

// NewID is what the ranks of a new communicator meet by.
func (l *Library) NewID() (id [IDSize]byte, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	err = l.call(getUniqueID, l.at(idAt))
	copy(id[:], l.room.Bytes()[idAt:])
	return id, err
}

// Comm is one rank of a communicator, on one GPU. One goroutine uses it at a time.
type Comm struct {
	l      *Library
	handle uintptr
	size   int
}

// Init waits until all ranks have called it. It and the methods of Comm are called where the GPU's context is current, within
// [gpu.Context].Do. Two ranks of a communicator cannot share a GPU.
func (l *Library) Init(id [IDSize]byte, rank, size int) (*Comm, error) {
	if rank < 0 || rank >= size {
		return nil, fmt.Errorf("rank %d of %d", rank, size)
	}
	own, err := offheap.Map(roomSize, offheap.Options{}) // ranks of one process wait for each other
	if err != nil {
		return nil, err
	}
	copy(own.Bytes()[idAt:], id[:])
	at := uintptr(own.Addr())
	err = l.call(commInitRankScalable, at+resultAt, uintptr(size), uintptr(rank), 1, at+idAt, 0)
	c := &Comm{l: l, handle: uintptr(binary.NativeEndian.Uint64(own.Bytes()[resultAt:])), size: size}
	if err := errors.Join(err, own.Release()); err != nil {
		return nil, err
	}
	return c, nil
}

// Group makes the calls of f one operation. Without one a rank cannot send to itself, and two ranks that send to each other wait for ever.
func (l *Library) Group(f func() error) error {
	if err := l.call(groupStart); err != nil {
		return err
	}
	err := f()
	return errors.Join(err, l.call(groupEnd))
}

const bytesType = 0 // ncclInt8

// Send enqueues a message of n bytes to a rank, Recv takes one; both have the same size.
func (c *Comm) Send(p gpu.Ptr, n, to int, s gpu.Stream) error { return c.move(send, p, n, to, s) }

// Recv is described with Send.
func (c *Comm) Recv(p gpu.Ptr, n, from int, s gpu.Stream) error { return c.move(recv, p, n, from, s) }

func (c *Comm) move(which symbol, p gpu.Ptr, n, peer int, s gpu.Stream) error {
	if n < 0 || peer < 0 || peer >= c.size {
		return fmt.Errorf("%s: %d bytes, rank %d of %d", names[which], n, peer, c.size)
	}
	return c.l.call(which, uintptr(p), uintptr(n), bytesType, uintptr(peer), c.handle, uintptr(s))
}

// Close frees the communicator; all its work is done by then. A second call is nil.
func (c *Comm) Close() error {
	h := c.handle
	c.handle = 0
	if h == 0 {
		return nil
	}
	return c.l.call(commDestroy, h)
}
