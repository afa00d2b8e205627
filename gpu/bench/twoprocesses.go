//go:build linux

package main

import (
	"encoding/gob"
	"errors"
	"fmt"
	"net"
	"os"
	"runtime"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"github.com/purerdma/purerdma/bench/pair"
	"github.com/purerdma/purerdma/gpu"
	"github.com/purerdma/purerdma/gpu/copies"
	"github.com/purerdma/purerdma/gpu/kernels"
	"github.com/purerdma/purerdma/internal/mmio"
	"github.com/purerdma/purerdma/internal/offheap"
)

// orders is what the second process gets when it starts.
type orders struct{ Device int }

// task is one thing that it does, as the sender.
type task struct {
	What     string // "ring", "rounds", "direct"
	Channels int
	Bytes    int // of a message
	Depth    int
	Count    int
}

// directAt is where messages go straight: behind the rings.
const (
	directSize = 256 << 20
	sharedSize = connectionSize + directSize
	directAt   = connectionSize
)

// control is the page of host memory that both processes have: the sender counts what it has delivered, the receiver what it has
// room for.
type control struct{ span offheap.Span }

func (c control) word(i int) *uint64 { return wordAt(c.span, i) }

const (
	delivered = iota
	room
	armed // the sender is about to begin
	begin // it may
)

func newControl(fd int) (control, error) {
	span, err := offheap.MapFile(fd, 0, os.Getpagesize())
	return control{span}, err
}

// twoProcesses measures this process as receiver, and another one as sender.
func (t *tool) twoProcesses(g gpu.Context) (err error) {
	nc, wait, err := pair.Start(orders{t.device}, t.out.Err)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, nc.Close(), wait()) }()
	page, err := unix.MemfdCreate("gpubench", unix.MFD_CLOEXEC)
	if err != nil {
		return err
	}
	defer unix.Close(page)
	if err := unix.Ftruncate(page, int64(os.Getpagesize())); err != nil {
		return err
	}
	ctl, err := newControl(page)
	if err != nil {
		return err
	}
	shared, fd, err := share(g)
	if err != nil {
		return err
	}
	if err := sendFDs(nc, page, fd); err != nil {
		return err
	}
	if err := unix.Close(fd); err != nil {
		return err
	}
	r := &receiver{t: t, g: g, ctl: ctl, base: shared, to: gob.NewEncoder(nc), from: gob.NewDecoder(nc)}
	if r.e, err = newEnd(g, ringAll); err != nil {
		return err
	}
	if r.set, err = kernels.Load(g); err != nil {
		return err
	}
	defer r.set.Close()
	var ready bool
	if err := r.from.Decode(&ready); err != nil {
		return fmt.Errorf("the second process: %w", err)
	}
	if t.doc.MPS {
		if err := errors.Join(r.rings(), r.rounds()); err != nil {
			return err
		}
	}
	if err := r.directs(); err != nil {
		return err
	}
	return r.e.close()
}

// share makes the memory that both processes map.
func share(g gpu.Context) (gpu.Ptr, int, error) {
	a, err := g.Create(sharedSize, false)
	if err != nil {
		return 0, -1, err
	}
	p, err := g.Reserve(sharedSize)
	if err != nil {
		return 0, -1, err
	}
	if err := g.Map(p, sharedSize, a); err != nil {
		return 0, -1, err
	}
	fd, err := g.Export(a)
	return p, fd, err
}

func sendFDs(nc net.Conn, fds ...int) error {
	u, ok := nc.(*net.UnixConn)
	if !ok {
		return errors.New("the socket between the processes carries no descriptors")
	}
	_, _, err := u.WriteMsgUnix([]byte{0}, unix.UnixRights(fds...), nil)
	return err
}

func receiveFDs(nc net.Conn, n int) ([]int, error) {
	u, ok := nc.(*net.UnixConn)
	if !ok {
		return nil, errors.New("the socket between the processes carries no descriptors")
	}
	oob := make([]byte, unix.CmsgSpace(4*n))
	_, got, _, _, err := u.ReadMsgUnix(make([]byte, 1), oob)
	if err != nil {
		return nil, err
	}
	messages, err := unix.ParseSocketControlMessage(oob[:got])
	if err != nil || len(messages) != 1 {
		return nil, errors.Join(errors.New("no descriptors came"), err)
	}
	return unix.ParseUnixRights(&messages[0])
}

type receiver struct {
	t    *tool
	g    gpu.Context
	e    *end
	set  *kernels.Set
	ctl  control
	base gpu.Ptr
	to   *gob.Encoder
	from *gob.Decoder
}

// run gives the sender a task, and gives the time from when both are ready until here has received all.
func (r *receiver) run(k task, here func() error) (time.Duration, error) {
	if err := (connection{r.base}).clear(r.g, r.e.a); err != nil {
		return 0, err
	}
	for i, v := range map[int]uint64{delivered: 0, room: uint64(k.Depth), armed: 0, begin: 0} {
		mmio.StoreRelease64(r.ctl.word(i), v)
	}
	if err := r.to.Encode(k); err != nil {
		return 0, err
	}
	await(r.ctl.word(armed))
	took, err := timed(func() error {
		mmio.StoreRelease64(r.ctl.word(begin), 1)
		return here()
	})
	if err != nil {
		return 0, err
	}
	var failed string
	if err := r.from.Decode(&failed); err != nil {
		return 0, fmt.Errorf("the second process: %w", err)
	}
	if failed != "" {
		return 0, errors.New(failed)
	}
	return took, nil
}

// patience bounds the wait for the other process.
const patience = 30 * time.Second

// await spins until a word is not 0, or patience is over: the next read of the socket then tells why.
func await(w *uint64) {
	for start := time.Now(); mmio.LoadAcquire64(w) == 0 && time.Since(start) < patience; {
		runtime.Gosched()
	}
}

func (r *receiver) rings() error {
	for _, n := range []int{16, 32} {
		var ours, theirs []float64
		for range r.t.samples {
			took, err := fastest(func() (time.Duration, error) {
				return r.run(task{What: "ring", Channels: n}, func() error {
					if err := r.set.RecvSimple(r.e.a, r.e.abort, connection{r.base}.channels(n, r.e.dst, 0)); err != nil {
						return err
					}
					return r.e.wait()
				})
			})
			if err != nil {
				return err
			}
			ours = append(ours, ringAll/took.Seconds()/1e9)
			v, err := r.t.fromLimits(`: ([0-9.]+) GB/s`, "kring", strconv.Itoa(n), "512")
			if err != nil {
				return err
			}
			theirs = limit(theirs, v)
		}
		r.t.add("ring by kernels, two processes, "+strconv.Itoa(n)+" channels", "GB/s", ours, "the same in CUDA C++", theirs)
	}
	return nil
}

func (r *receiver) rounds() error {
	var ours, theirs []float64
	for range r.t.samples {
		took, err := r.run(task{What: "rounds", Count: rounds}, func() error {
			at := r.base + wordsAt
			if err := r.set.Rounds(r.e.a, r.e.abort, at, at+512, rounds, true); err != nil {
				return err
			}
			return r.e.wait()
		})
		if err != nil {
			return err
		}
		ours = append(ours, float64(took.Nanoseconds())/rounds/2)
		v, err := r.t.fromLimits(`half round trip ([0-9.]+) us`, "two", strconv.Itoa(rounds))
		if err != nil {
			return err
		}
		theirs = limit(theirs, v*1000)
	}
	r.t.add("8 bytes by LL, two processes, half round trip", "ns", ours, "flags in CUDA C++", theirs)
	return nil
}

// directs are messages straight into the receiver's memory: it counts each in, and gives the room back.
func (r *receiver) directs() error {
	for _, k := range []task{{"direct", 0, 64 << 20, 2, 100}, {"direct", 0, 64 << 20, 4, 100}, {"direct", 0, 8 << 10, 8, 4000}} {
		var ours, theirs []float64
		for range r.t.samples {
			took, err := r.run(k, func() error {
				for got := uint64(0); got < uint64(k.Count); {
					now := mmio.LoadAcquire64(r.ctl.word(delivered))
					if now == got {
						runtime.Gosched()
						continue
					}
					got = now
					mmio.StoreRelease64(r.ctl.word(room), got+uint64(k.Depth))
				}
				return nil
			})
			if err != nil {
				return err
			}
			if k.Bytes >= 1<<20 {
				ours = append(ours, float64(k.Bytes)*float64(k.Count)/took.Seconds()/1e9)
				plain, err := r.plainCopies(k)
				if err != nil {
					return err
				}
				theirs = append(theirs, plain)
				continue
			}
			ours = append(ours, took.Seconds()*1e6/float64(k.Count))
			v, err := r.t.fromLimits(`: ([0-9.]+) us each`, "directn", strconv.Itoa(k.Bytes>>10), strconv.Itoa(k.Depth))
			if err != nil {
				return err
			}
			theirs = limit(theirs, v)
		}
		name := fmt.Sprintf("copy engine, two processes, %s, %d in flight", map[bool]string{true: "64 MiB", false: "8 KiB"}[k.Bytes >= 1<<20], k.Depth)
		if k.Bytes >= 1<<20 {
			r.t.add(name, "GB/s", ours, "the driver's copy on the device", theirs)
		} else {
			r.t.add(name, "µs", ours, "the same in CUDA C++", theirs)
		}
	}
	return nil
}

// plainCopies is the driver's copy of the same bytes on the device, one after the other.
func (r *receiver) plainCopies(k task) (float64, error) {
	took, err := timed(func() error {
		for range k.Count {
			if err := r.g.Copy(r.e.dst, r.e.src, k.Bytes, r.e.a); err != nil {
				return err
			}
		}
		return r.e.wait()
	})
	return float64(k.Bytes) * float64(k.Count) / took.Seconds() / 1e9, err
}

// second is the other process: the sender.
func second() int {
	var o orders
	nc, err := pair.Join(&o)
	if err == nil {
		err = send(nc, o)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "sender:", err)
		return 1
	}
	return 0
}

func send(nc net.Conn, o orders) error {
	defer nc.Close()
	fds, err := receiveFDs(nc, 2)
	if err != nil || len(fds) != 2 {
		return errors.Join(fmt.Errorf("%d descriptors came", len(fds)), err)
	}
	ctl, err := newControl(fds[0])
	if err != nil {
		return err
	}
	_, g, err := open(o.Device)
	if err != nil {
		return err
	}
	defer g.Close()
	a, err := g.Import(fds[1])
	if err != nil {
		return err
	}
	base, err := g.Reserve(sharedSize)
	if err != nil {
		return err
	}
	if err := g.Map(base, sharedSize, a); err != nil {
		return err
	}
	s := &sender{g: g, ctl: ctl, base: base}
	if s.e, err = newEnd(g, ringAll); err != nil {
		return err
	}
	if s.set, err = kernels.Load(g); err != nil {
		return err
	}
	defer s.set.Close()
	to, from := gob.NewEncoder(nc), gob.NewDecoder(nc)
	if err := to.Encode(true); err != nil {
		return err
	}
	for {
		var k task
		if err := from.Decode(&k); err != nil {
			return nil // the receiver has ended
		}
		failed := ""
		if err := s.do(k); err != nil {
			failed = err.Error()
		}
		if err := to.Encode(failed); err != nil {
			return err
		}
	}
}

type sender struct {
	g    gpu.Context
	e    *end
	set  *kernels.Set
	ctl  control
	base gpu.Ptr
}

func (s *sender) do(k task) error {
	mmio.StoreRelease64(s.ctl.word(armed), 1)
	await(s.ctl.word(begin))
	switch k.What {
	case "ring":
		if err := s.set.SendSimple(s.e.a, s.e.abort, connection{s.base}.channels(k.Channels, s.e.src, 0)); err != nil {
			return err
		}
		return s.e.wait()
	case "rounds":
		at := s.base + wordsAt
		if err := s.set.Rounds(s.e.a, s.e.abort, at+512, at, k.Count, false); err != nil {
			return err
		}
		return s.e.wait()
	}
	return s.g.Do(func(g gpu.Context) error { return s.direct(g, k) })
}

// direct keeps as many copies going as the receiver has room for, and counts each when it is done.
func (s *sender) direct(g gpu.Context, k task) error {
	e, err := copies.New(g, k.Depth)
	if err != nil {
		return err
	}
	var started, done uint64
	for done < uint64(k.Count) {
		for started < uint64(k.Count) && started < mmio.LoadAcquire64(s.ctl.word(room)) {
			at := gpu.Ptr(int(started) % k.Depth * k.Bytes)
			_, ok, err := e.Start(s.base+directAt+at, s.e.src+at, k.Bytes)
			if err != nil {
				return errors.Join(err, e.Close())
			}
			if !ok {
				break
			}
			started++
		}
		now, err := e.Done()
		if err != nil {
			return errors.Join(err, e.Close())
		}
		if now > done {
			done = now
			mmio.StoreRelease64(s.ctl.word(delivered), done)
		}
	}
	return e.Close()
}
