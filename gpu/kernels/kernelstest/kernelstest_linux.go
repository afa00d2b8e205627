// Package kernelstest is the kernels as Go functions, for the GPU of package
// gputest: the same protocols on the same memory, one goroutine a launch.
package kernelstest

import (
	"encoding/binary"
	"errors"
	"runtime"

	"github.com/purerdma/purerdma/gpu"
	"github.com/purerdma/purerdma/gpu/gputest"
)

// Kernels is what gputest.Config wants.
func Kernels() map[string]gputest.Kernel {
	return map[string]gputest.Kernel{
		"simple_send": each(simpleSend), "simple_recv": each(simpleRecv), "ll_send": each(llSend), "ll_recv": each(llRecv),
		"ll_rounds": rounds, "ll_lines": lineByLine,
	}
}

const slots = 8

// errEnded ends a kernel that was told to.
var errEnded = errors.New("ended")

// run is one channel's progress.
type run struct {
	m          gputest.Machine
	abort      gpu.Ptr
	data       gpu.Ptr
	left       int
	buffer     gpu.Ptr
	head, tail gpu.Ptr
	step       uint64
	size       int
	fifo       gpu.Ptr
	done       bool
}

// each runs the channels of a launch in turn, a step at a time, until all are done:
// one that waits does not hold the others up.
func each(step func(*run) (moved bool, err error)) gputest.Kernel {
	return func(m gputest.Machine, l gpu.Launch) error {
		word := func(at int) uint64 { return binary.LittleEndian.Uint64(l.Params[at:]) }
		runs := make([]*run, l.Grid.X)
		for i := range runs {
			at := 8 + 56*i
			runs[i] = &run{m: m, abort: gpu.Ptr(word(0)), data: gpu.Ptr(word(at)), left: int(word(at + 8)), buffer: gpu.Ptr(word(at + 16)),
				head: gpu.Ptr(word(at + 24)), tail: gpu.Ptr(word(at + 32)), step: word(at + 40), size: int(uint32(word(at + 48)))}
			if off := word(at+48) >> 32; off != 0 {
				runs[i].fifo = runs[i].tail + gpu.Ptr(off)
			}
		}
		for left := len(runs); left > 0; {
			idle := true
			for _, r := range runs {
				if r.done {
					continue
				}
				moved, err := step(r)
				if err != nil {
					return err
				}
				if moved {
					idle = false
				}
				if r.done {
					left--
				}
			}
			if idle {
				if err := pause(m, gpu.Ptr(word(0))); err != nil {
					return ended(err)
				}
			}
		}
		return nil
	}
}

func ended(err error) error {
	if errors.Is(err, errEnded) {
		return nil
	}
	return err
}

// pause lets others run, and ends the kernel when it is told to.
func pause(m gputest.Machine, abort gpu.Ptr) error {
	select {
	case <-m.Ended():
		return errEnded
	default:
	}
	runtime.Gosched()
	v, err := m.Load(abort)
	if err == nil && uint32(v) != 0 {
		return errEnded
	}
	return err
}

// slot is the step's place in the buffer.
func (r *run) slot() ([]byte, error) {
	return r.m.Bytes(r.buffer+gpu.Ptr(int(r.step%slots)*r.size), r.size)
}

// next goes on behind n bytes.
func (r *run) next(n int) {
	r.step++
	r.left -= n
	r.data += gpu.Ptr(n)
	r.done = r.left == 0
}

// free reports whether the consumer has left a slot.
func (r *run) free() (bool, error) {
	h, err := r.m.Load(r.head)
	return r.step < h+slots, err
}

// sized tells a proxy what the step has.
func (r *run) sized(n int) error {
	if r.fifo == 0 {
		return nil
	}
	return r.m.Store(r.fifo+gpu.Ptr(24*(r.step%slots)+8), uint64(n))
}

func simpleSend(r *run) (bool, error) {
	if ok, err := r.free(); !ok || err != nil {
		return false, err
	}
	n := min(r.left, r.size)
	to, err := r.slot()
	if err != nil {
		return false, err
	}
	from, err := r.m.Bytes(r.data, n)
	if err != nil {
		return false, err
	}
	copy(to, from)
	if err := r.sized(n); err != nil {
		return false, err
	}
	r.next(n)
	return true, r.m.Store(r.tail, r.step)
}

func simpleRecv(r *run) (bool, error) {
	if t, err := r.m.Load(r.tail); t <= r.step || err != nil {
		return false, err
	}
	n := min(r.left, r.size)
	from, err := r.slot()
	if err != nil {
		return false, err
	}
	to, err := r.m.Bytes(r.data, n)
	if err != nil {
		return false, err
	}
	copy(to, from)
	r.next(n)
	return true, r.m.Store(r.head, r.step)
}

// lines is how many a step of n bytes has.
func lines(n int) int { return max(1, (n+7)/8) }

func llSend(r *run) (bool, error) {
	if ok, err := r.free(); !ok || err != nil {
		return false, err
	}
	n := min(r.left, r.size/2)
	from, err := r.m.Bytes(r.data, n)
	if err != nil {
		return false, err
	}
	count := lines(n)
	if r.step&0x7ffffff8 == 0x7ffffff8 {
		count = r.size / 16
	}
	if err := r.sized(16 * count); err != nil {
		return false, err
	}
	flag := uint32(r.step + 1)
	at := r.buffer + gpu.Ptr(int(r.step%slots)*r.size)
	for i := range count {
		var data [8]byte
		if 8*i < n {
			copy(data[:], from[8*i:])
		}
		for half := range 2 {
			v := uint64(binary.LittleEndian.Uint32(data[4*half:])) | uint64(flag)<<32
			if err := r.m.Store(at+gpu.Ptr(16*i+8*half), v); err != nil {
				return false, err
			}
		}
	}
	r.next(n)
	return true, nil
}

func llRecv(r *run) (bool, error) {
	n := min(r.left, r.size/2)
	to, err := r.m.Bytes(r.data, n)
	if err != nil {
		return false, err
	}
	flag := uint32(r.step + 1)
	at := r.buffer + gpu.Ptr(int(r.step%slots)*r.size)
	for i := range lines(n) {
		var data [8]byte
		for half := range 2 {
			v, err := r.m.Load(at + gpu.Ptr(16*i+8*half))
			if uint32(v>>32) != flag || err != nil {
				return false, err
			}
			binary.LittleEndian.PutUint32(data[4*half:], uint32(v))
		}
		if 8*i < n {
			copy(to[8*i:], data[:])
		}
	}
	r.next(n)
	return true, r.m.Store(r.head, r.step)
}

func rounds(m gputest.Machine, l gpu.Launch) error {
	word := func(at int) gpu.Ptr { return gpu.Ptr(binary.LittleEndian.Uint64(l.Params[at:])) }
	abort, out, in := word(0), word(8), word(16)
	n, first := binary.LittleEndian.Uint32(l.Params[24:]), l.Params[28] != 0
	put := func(i uint32) error {
		for half := range 2 {
			if err := m.Store(out+gpu.Ptr(8*half), uint64(i)<<32|1); err != nil {
				return err
			}
		}
		return nil
	}
	for i := uint32(1); i <= n; i++ {
		if first {
			if err := put(i); err != nil {
				return err
			}
		}
		for half := 0; half < 2; {
			v, err := m.Load(in + gpu.Ptr(8*half))
			if err != nil {
				return err
			}
			if uint32(v>>32) == i {
				half++
			} else if err := pause(m, abort); err != nil {
				return ended(err)
			}
		}
		if !first {
			if err := put(i); err != nil {
				return err
			}
		}
	}
	return nil
}

// place is where a connection's steps go.
type place struct {
	buffer, head gpu.Ptr
	step         uint64
	size         gpu.Ptr
}

func (p *place) at() gpu.Ptr { return p.buffer + gpu.Ptr(p.step%slots)*p.size }

func lineByLine(m gputest.Machine, l gpu.Launch) error {
	word := func(at int) uint64 { return binary.LittleEndian.Uint64(l.Params[at:]) }
	short := func(at int) uint32 { return binary.LittleEndian.Uint32(l.Params[at:]) }
	abort := gpu.Ptr(word(0))
	in := &place{gpu.Ptr(word(8)), gpu.Ptr(word(16)), word(24), gpu.Ptr(short(56))}
	out := &place{gpu.Ptr(word(32)), gpu.Ptr(word(40)), word(48), gpu.Ptr(short(60))}
	until := func(f func() (bool, error)) error {
		for {
			ok, err := f()
			if ok || err != nil {
				return err
			}
			if err := pause(m, abort); err != nil {
				return err
			}
		}
	}
	for i := range short(64) {
		halves := [2]uint64{uint64(i + 1), 0}
		if in.buffer != 0 {
			for half := range halves {
				err := until(func() (ok bool, err error) {
					halves[half], err = m.Load(in.at() + gpu.Ptr(8*half))
					return halves[half]>>32 == uint64(uint32(in.step+1)), err
				})
				if err != nil {
					return ended(err)
				}
			}
		}
		if out.buffer != 0 {
			err := until(func() (bool, error) {
				head, err := m.Load(out.head)
				return out.step < head+slots, err
			})
			if err != nil {
				return ended(err)
			}
			for half, v := range halves {
				if err := m.Store(out.at()+gpu.Ptr(8*half), v&0xffffffff|uint64(uint32(out.step+1))<<32); err != nil {
					return err
				}
			}
			out.step++
		}
		if in.buffer != 0 {
			in.step++
			if err := m.Store(in.head, in.step); err != nil {
				return err
			}
		}
	}
	return nil
}
