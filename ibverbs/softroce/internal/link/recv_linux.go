package link

import (
	"context"
	"errors"
	"net"
	"os"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/purerdma/purerdma/internal/cause"
)

const (
	// recvBatch is how many messages come at once. One super-packet is work
	// enough for a call; of packets that are not merged many come by one.
	recvBatch = 16
	recvRoom  = 65536 + 64 // the largest IP packet, with a header of the link before it
)

// fastReceiver receives super-packets by recvmmsg into buffers of its own.
type fastReceiver struct {
	conn  interface{ SetReadDeadline(time.Time) error }
	raw   syscall.RawConn // of conn
	fd    *fdConn         // is raw, of a UDP socket; try goes a shorter way then
	stats *counters
	msgs  mmsg
	rooms []byte // recvRoom for each message
	// open makes a Datagrams of message i, whose bytes d.Data is, and says whether
	// it is one.
	open  func(i int, d *Datagrams) bool
	want  int
	got   int
	errno syscall.Errno
	block bool

	merging merging      // of a UDP socket
	classed *atomic.Bool // messages come with the type of service

	read func(fd uintptr) bool // r.onReady, bound once
	look func(fd uintptr)      // the same
}

func newFastReceiver(u *UDP) *fastReceiver {
	r := &fastReceiver{conn: u.main.conn, raw: u.main.raw, fd: u.main.raw.(*fdConn), stats: &u.stats, classed: &u.classed}
	r.merging = merging{on: true, able: true}
	r.open = r.openUDP
	return r.init()
}

func (r *fastReceiver) init() *fastReceiver {
	r.rooms = make([]byte, recvBatch*recvRoom)
	r.msgs.init(recvBatch, recvRoom)
	for i := range recvBatch {
		r.msgs.iovs[i].Base = &r.rooms[i*recvRoom]
	}
	r.read = r.onReady
	r.look = func(fd uintptr) { r.onReady(fd) }
	return r
}

func (r *fastReceiver) onReady(fd uintptr) bool {
	for {
		r.got, r.errno = r.msgs.recv(fd, r.want)
		switch r.errno {
		case unix.EINTR:
			continue
		case unix.EAGAIN:
			r.got, r.errno = 0, 0
			return !r.block
		case 0:
			r.weigh(r.got)
		}
		return true
	}
}

func (r *fastReceiver) try(batch []Datagrams) (int, error) {
	if r.fd == nil {
		return r.take(batch, false)
	}
	if err := r.fd.begin(); err != nil {
		return 0, err
	}
	alone := len(batch) == 1 && !r.merging.on && !r.classed.Load()
	n, errno := r.ask(min(len(batch), recvBatch), alone)
	switch {
	case errno == 0:
		r.weigh(n)
	case errno == unix.EAGAIN && r.merging.few >= fewForOff:
		r.stopMerging()
	}
	r.fd.end()
	switch {
	case errno == unix.EAGAIN:
		return 0, nil
	case errno != 0:
		return r.take(batch, false)
	case alone:
		d := &batch[0]
		d.SrcPort, d.TOS, d.ID, d.Seg, d.Data = 0, 0, 0, 0, r.rooms[:r.msgs.hdrs[0].Len:recvRoom]
		ok := r.msgs.source(0, &d.Addr)
		r.msgs.hdrs[0].Hdr.Namelen = unix.SizeofSockaddrInet6
		if !ok {
			return 0, nil
		}
		r.stats.came(d)
		return 1, nil
	}
	r.got = n
	return r.fill(batch), nil
}

// ask takes up to n messages by the cheapest call that tells all of them. Of one that is alone
// there are no control messages.
func (r *fastReceiver) ask(n int, alone bool) (int, syscall.Errno) {
	if alone {
		return r.msgs.recvLone(uintptr(r.fd.fd))
	}
	return r.msgs.recv(uintptr(r.fd.fd), n)
}

// await sleeps until something may have come. Others may try meanwhile.
func (r *fastReceiver) await() error { return r.fd.await() }

// rouse ends await.
func (r *fastReceiver) rouse() { r.fd.rouse() }

func (r *fastReceiver) take(batch []Datagrams, block bool) (int, error) {
	r.want, r.block = min(len(batch), recvBatch), block
	for {
		var err error
		if block {
			err = r.raw.Read(r.read)
		} else {
			err = r.raw.Control(r.look)
		}
		if err != nil {
			if errors.Is(err, net.ErrClosed) {
				return 0, net.ErrClosed
			}
			return 0, err
		}
		if r.errno != 0 {
			// An error that was pending on the socket is about some packet
			// and is gone now.
			r.errno = 0
			continue
		}
		if n := r.fill(batch); n > 0 || !block {
			return n, nil
		}
	}
}

// fill makes Datagrams of what came and leaves out what was cut off.
func (r *fastReceiver) fill(batch []Datagrams) (n int) {
	for i := range r.got {
		d := &batch[n]
		*d = Datagrams{Data: r.rooms[i*recvRoom:][:r.msgs.hdrs[i].Len:recvRoom]}
		ok := r.open(i, d)
		r.msgs.reset(i)
		if !ok {
			continue
		}
		r.stats.came(d)
		n++
	}
	return n
}

func (r *fastReceiver) openUDP(i int, d *Datagrams) bool {
	r.msgs.controls(i, d)
	return r.msgs.source(i, &d.Addr)
}

var longAgo = time.Unix(1, 0)

func (r *fastReceiver) wait(ctx context.Context, batch []Datagrams) (int, error) {
	if ctx.Done() == nil {
		return r.take(batch, true)
	}
	// Registering with the context costs more than a look.
	if n, err := r.take(batch, false); n > 0 || err != nil {
		return n, err
	}
	fired := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		r.conn.SetReadDeadline(longAgo)
		close(fired)
	})
	n, err := r.take(batch, true)
	if !stop() {
		<-fired
		r.conn.SetReadDeadline(time.Time{})
	}
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return 0, cause.Of(ctx)
	}
	return n, err
}

func (r *fastReceiver) close() {}
