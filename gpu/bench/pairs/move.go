//go:build linux

package main

import (
	"errors"
	"runtime"

	"github.com/purerdma/purerdma/gpu"
	"github.com/purerdma/purerdma/gpu/copies"
	"github.com/purerdma/purerdma/gpu/kernels"
	"github.com/purerdma/purerdma/internal/mmio"
	"github.com/purerdma/purerdma/transport/driver"
)

// channelBytes is the least that a second channel is used for.
const channelBytes = 64 << 10

// channels divides n bytes at data among at most so many channels of a peer, and counts their steps.
func (r *rank) channels(peer int, send bool, p driver.Protocol, data gpu.Ptr, n, most int) (all []kernels.Channel) {
	count := max(1, min(most, r.Channels, n/channelBytes))
	part := ((n+count-1)/count + 15) &^ 15
	for i := range count {
		at := min(i*part, n)
		bytes := min(part, n-at)
		c, end := r.conn(r.many, peer, i, send), r.end(peer, i, send)
		payload := c.Steps[p]
		if p == driver.LL {
			payload /= 2
		}
		all = append(all, kernels.Channel{Data: data + gpu.Ptr(at), Bytes: bytes, Buffer: c.Buffers[p], Head: c.Head, Tail: c.Tail, First: r.steps[end],
			Step: c.Steps[p]})
		r.steps[end] += kernels.Steps(bytes, payload)
	}
	return all
}

// send enqueues kernels that send a message, recv those that take one.
func (r *rank) send(peer int, p driver.Protocol, data gpu.Ptr, n int) error {
	r.sent(peer, n)
	f := r.set.SendSimple
	if p == driver.LL {
		f = r.set.SendLL
	}
	return f(r.a, r.abort, r.channels(peer, true, p, data, n, r.Channels))
}

func (r *rank) recv(peer int, p driver.Protocol, data gpu.Ptr, n int) error {
	f := r.set.RecvSimple
	if p == driver.LL {
		f = r.set.RecvLL
	}
	return f(r.b, r.abort, r.channels(peer, false, p, data, n, r.Channels))
}

// carry is one end of messages by copies through the slots of a large buffer: count messages of n bytes, each at data. The processors tell
// each other what is done. With across only the copy from GPU to GPU is made, the sender's, or in read mode the receiver's, which is all
// that a program needs that uses the slots themselves.
type carry struct {
	peer     int
	send     bool
	data     gpu.Ptr
	n, count int
	across   bool
}

// carry does it, after ready has returned.
func (r *rank) carry(k carry, ready func() error) error {
	return r.g.Do(func(g gpu.Context) error {
		e, err := copies.New(g, driver.Steps)
		if err != nil {
			return err
		}
		if err = ready(); err == nil {
			err = r.carryOn(k, e)
		}
		return errors.Join(err, e.Close())
	})
}

func (r *rank) carryOn(k carry, e *copies.Engine) error {
	c := r.conn(r.bulk, k.peer, 0, k.send)
	mine, theirs, carried := r.page.told(r.me, k.peer), r.page.taken(r.me, k.peer), &r.carriedOut[k.peer]
	if !k.send {
		mine, theirs, carried = r.page.taken(k.peer, r.me), r.page.told(k.peer, r.me), &r.carriedIn[k.peer]
	}
	copies := !k.across || k.send != c.Read
	slot := c.Steps[driver.Simple]
	each := max(1, (k.n+slot-1)/slot)
	first, all := *carried, uint64(each*k.count)
	*carried += all
	if k.send {
		r.sent(k.peer, k.n*k.count)
	}
	var started, done uint64
	for done < all {
		before := started + done
		seen := mmio.LoadAcquire64(theirs)
		for started < all && (k.send && first+started < seen+driver.Steps || !k.send && first+started < seen) {
			off := int(started) % each * slot
			size := min(slot, k.n-off)
			dst, src := c.Buffers[driver.Simple]+gpu.Ptr(int((first+started)%driver.Steps)*slot), k.data+gpu.Ptr(off)
			if !k.send {
				dst, src = src, dst
			}
			if copies && size > 0 {
				if _, ok, err := e.Start(dst, src, size); err != nil {
					return err
				} else if !ok {
					break
				}
			}
			started++
		}
		done = started
		if copies && k.n > 0 {
			var err error
			if done, err = e.Done(); err != nil {
				return err
			}
		}
		if started+done > before {
			mmio.StoreRelease64(mine, first+done)
			continue
		}
		if done == started { // the peer's turn
			want := first + started + 1
			if k.send {
				want -= driver.Steps
			}
			if err := wait(theirs, want, r.job.Done()); err != nil {
				return err
			}
		}
		runtime.Gosched()
	}
	return nil
}

// bounce sends a few bytes to and fro by copies: rounds, begun by first. It is the CPU that starts each copy and sees its end.
func (r *rank) bounce(peer int, first bool, n, rounds int, ready func() error) error {
	out, in := r.conn(r.bulk, peer, 0, true), r.conn(r.bulk, peer, 0, false)
	told, heard := r.page.told(r.me, peer), r.page.told(peer, r.me)
	a, b := mmio.LoadAcquire64(told), mmio.LoadAcquire64(heard)
	return r.g.Do(func(g gpu.Context) error {
		e, err := copies.New(g, 1)
		if err != nil {
			return err
		}
		copied := func(dst, src gpu.Ptr) error {
			number, _, err := e.Start(dst, src, n)
			for err == nil {
				var done uint64
				if done, err = e.Done(); done == number {
					break
				}
			}
			return err
		}
		throw := func() (err error) {
			if !out.Read {
				err = copied(out.Buffers[driver.Simple], r.src)
			}
			a++
			mmio.StoreRelease64(told, a)
			return err
		}
		catch := func() error {
			b++
			if err := wait(heard, b, r.job.Done()); err != nil || !in.Read {
				return err
			}
			return copied(r.dst, in.Buffers[driver.Simple])
		}
		err = ready()
		for i := 0; i < rounds && err == nil; i++ {
			if first {
				err = throw()
			}
			if err == nil {
				err = catch()
			}
			if !first && err == nil {
				err = throw()
			}
		}
		// The counts of whole messages go on where they were.
		r.carriedOut[peer], r.carriedIn[peer] = a, b
		mmio.StoreRelease64(r.page.taken(peer, r.me), b)
		return errors.Join(err, e.Close())
	})
}
