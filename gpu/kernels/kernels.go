// Package kernels is the code that runs on GPUs: producer and consumer of NCCL's
// protocols SIMPLE and LL (kernels.ptx), loaded by the driver, and how to launch
// it.
package kernels

import (
	_ "embed"
	"encoding/binary"
	"fmt"
	"math"

	"github.com/purerdma/purerdma/gpu"
)

//go:embed kernels.ptx
var text []byte

const (
	// MaxChannels is how many one launch runs.
	MaxChannels = 64
	// Slots is how many steps a buffer holds (NCCL_STEPS).
	Slots = 8
	// Threads is those of a block.
	Threads = 512

	channelSize = 56
)

// Channel is one channel's part of a message. The buffer has Slots slots of Step
// bytes; Head and Tail are words of 64 bits, each on a cache line of its own.
type Channel struct {
	Data   gpu.Ptr // source or destination
	Bytes  int
	Buffer gpu.Ptr
	Head   gpu.Ptr // the consumer writes how many steps it has consumed
	Tail   gpu.Ptr // the producer writes how many it has produced; LL has none
	First  uint64  // step with which the message begins
	Step   int     // bytes of a slot, a multiple of 16; LL carries half of it
	// FIFO is the slots in which producers leave the size of each step for a proxy (ncclConnFifo), behind Tail; 0 for none.
	FIFO gpu.Ptr
}

// Steps is how many steps a message of n bytes takes that has payload bytes in
// each.
func Steps(n, payload int) uint64 { return uint64(max(1, (n+payload-1)/payload)) }

// Set is the kernels, loaded on one GPU.
type Set struct {
	c         gpu.Context
	module    gpu.Module
	functions [len(names)]gpu.Function
}

var names = [...]string{"simple_send", "simple_recv", "ll_send", "ll_recv", "ll_rounds", "ll_lines"}

const (
	simpleSend = iota
	simpleRecv
	llSend
	llRecv
	llRounds
	llLines
)

// Load puts the kernels onto the GPU of c. Close it before c.
func Load(c gpu.Context) (*Set, error) {
	m, fs, err := c.Load(text, names[:]...)
	if err != nil {
		return nil, fmt.Errorf("load the kernels that move data: %w", err)
	}
	return &Set{c: c, module: m, functions: [len(names)]gpu.Function(fs)}, nil
}

// Close unloads them; none may be running.
func (s *Set) Close() error { return s.c.Unload(s.module) }

// SendSimple enqueues producers, one block for each channel. They end when all is
// produced, or when the word at abort is not 0. It does not wait.
func (s *Set) SendSimple(stream gpu.Stream, abort gpu.Ptr, channels []Channel) error {
	return s.launch(simpleSend, stream, abort, channels)
}

// RecvSimple enqueues consumers.
func (s *Set) RecvSimple(stream gpu.Stream, abort gpu.Ptr, channels []Channel) error {
	return s.launch(simpleRecv, stream, abort, channels)
}

// SendLL and RecvLL are the same for lines with flags.
func (s *Set) SendLL(stream gpu.Stream, abort gpu.Ptr, channels []Channel) error {
	return s.launch(llSend, stream, abort, channels)
}

// RecvLL enqueues consumers of lines.
func (s *Set) RecvLL(stream gpu.Stream, abort gpu.Ptr, channels []Channel) error {
	return s.launch(llRecv, stream, abort, channels)
}

func (s *Set) launch(which int, stream gpu.Stream, abort gpu.Ptr, channels []Channel) error {
	if len(channels) < 1 || len(channels) > MaxChannels {
		return fmt.Errorf("%d channels in one launch, at most %d", len(channels), MaxChannels)
	}
	var params [8 + MaxChannels*channelSize]byte
	le := binary.LittleEndian
	le.PutUint64(params[:], uint64(abort))
	for i, c := range channels {
		fifo := c.FIFO - c.Tail
		if c.FIFO == 0 {
			fifo = 0
		} else if fifo == 0 || fifo > math.MaxUint32 {
			return fmt.Errorf("channel %d: the sizes at %#x do not lie behind the tail at %#x", i, uint64(c.FIFO), uint64(c.Tail))
		}
		if c.Step < 16 || c.Step%16 != 0 || c.Bytes < 0 {
			return fmt.Errorf("channel %d: %d bytes in steps of %d, want a multiple of 16", i, c.Bytes, c.Step)
		}
		b := params[8+i*channelSize:]
		for j, v := range [...]uint64{uint64(c.Data), uint64(c.Bytes), uint64(c.Buffer), uint64(c.Head), uint64(c.Tail), c.First, uint64(c.Step) | uint64(fifo)<<32} {
			le.PutUint64(b[8*j:], v)
		}
	}
	return s.c.Launch(gpu.Launch{F: s.functions[which], Grid: gpu.Dim{X: uint32(len(channels))}, Block: gpu.Dim{X: Threads},
		Stream: stream, Params: params[:]})
}

// Rounds enqueues one thread that exchanges lines of LL with another one at the
// other end: to measure what a message of 8 bytes costs. out and in are lines of
// 16 bytes, zero at the start.
func (s *Set) Rounds(stream gpu.Stream, abort, out, in gpu.Ptr, rounds int, first bool) error {
	var params [32]byte
	le := binary.LittleEndian
	for i, p := range [...]gpu.Ptr{abort, out, in} {
		le.PutUint64(params[8*i:], uint64(p))
	}
	le.PutUint32(params[24:], uint32(rounds))
	if first {
		le.PutUint32(params[28:], 1)
	}
	return s.c.Launch(gpu.Launch{F: s.functions[llRounds], Block: gpu.Dim{X: 1}, Stream: stream, Params: params[:]})
}

// Lines enqueues one thread that takes count messages of 8 bytes by LL from the connection in and gives each back on out, a step for each.
// Of in and out it uses Buffer, Head, First and Step. With an empty in it makes the messages, which are the numbers from 1 to count; with an
// empty out it takes them and gives none back.
func (s *Set) Lines(stream gpu.Stream, abort gpu.Ptr, in, out Channel, count int) error {
	var params [68]byte
	le := binary.LittleEndian
	le.PutUint64(params[:], uint64(abort))
	for i, c := range [...]Channel{in, out} {
		if c.Buffer != 0 && (c.Step < 16 || c.Step%16 != 0) {
			return fmt.Errorf("lines in steps of %d bytes, want a multiple of 16", c.Step)
		}
		b := params[8+24*i:]
		for j, v := range [...]uint64{uint64(c.Buffer), uint64(c.Head), c.First} {
			le.PutUint64(b[8*j:], v)
		}
		le.PutUint32(params[56+4*i:], uint32(c.Step))
	}
	if count < 0 || count > math.MaxInt32 || in.Buffer == 0 && out.Buffer == 0 {
		return fmt.Errorf("%d lines between %#x and %#x", count, uint64(in.Buffer), uint64(out.Buffer))
	}
	le.PutUint32(params[64:], uint32(count))
	return s.c.Launch(gpu.Launch{F: s.functions[llLines], Block: gpu.Dim{X: 1}, Stream: stream, Params: params[:]})
}
