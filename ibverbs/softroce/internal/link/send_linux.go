package link

import (
	"syscall"

	"golang.org/x/sys/unix"
)

// sendState is what one sendmmsg needs. It lives on the heap and is used again,
// so that a send allocates nothing.
type sendState struct {
	sock    *socket
	msgs    mmsg
	packets [sendBatch]uint64 // in each message
	count   int               // messages loaded
	most    int               // of them since the last forget
	next    int               // that was not sent yet
	errno   syscall.Errno
	write   func(fd uintptr) bool // st.onReady, bound once
	fd      *fdConn               // the socket, for a shorter way
	lone    lone
}

func newSendState(s *socket) *sendState {
	st := &sendState{sock: s, fd: s.raw.(*fdConn)}
	st.msgs.init(sendBatch, 0)
	st.write = st.onReady
	return st
}

// onReady sends what it can, and says false when it is to be called again once
// there is room.
func (st *sendState) onReady(fd uintptr) bool {
	for st.next < st.count {
		n, errno := st.msgs.send(fd, st.next, st.count)
		switch errno {
		case 0:
			st.next += n
		case unix.EINTR:
		case unix.EAGAIN:
			return false
		default:
			st.errno = errno
			return true
		}
	}
	return true
}

// atOnce sends what there is room for, and reports whether that was anything.
func (st *sendState) atOnce() bool {
	if st.fd.begin() != nil {
		return false
	}
	n, errno := st.msgs.send(uintptr(st.fd.fd), st.next, st.count)
	st.fd.end()
	if errno != 0 {
		return false
	}
	st.next += n
	return n > 0
}

// send hands over at most sendBatch Datagrams.
func (st *sendState) send(u *UDP, batch []Datagrams) (int, error) {
	first := 0 // of those loaded
	for i := range batch {
		d := &batch[i]
		err := u.check(d)
		if err == nil && !u.alone(d) {
			st.load(d, d.Data, d.Seg)
			continue
		}
		if n, err := st.flush(u, batch[first:i]); err != nil {
			return first + n, err
		}
		if err == nil {
			err = st.oneByOne(u, d)
		}
		if err != nil {
			return i, err
		}
		first = i + 1
	}
	n, err := st.flush(u, batch[first:])
	return first + n, err
}

// sendLone sends d if it is a packet without more, and there is room. It reports false where
// that takes the longer way, also to find out what is wrong.
func (s *socket) sendLone(u *UDP, d *Datagrams) bool {
	if s.plain || d.TOS != 0 || d.Len() > 1 || len(d.Data) > MaxData || d.Addr.Addr().Is4() != u.addr.Addr().Is4() {
		return false
	}
	st := s.spare.Swap(nil)
	if st == nil {
		return false
	}
	sent := false
	if st.lone.address(d.Addr, s.scope); st.fd.begin() == nil {
		sent = st.lone.send(uintptr(st.fd.fd), d.Data) == 0
		st.fd.end()
	}
	if sent {
		u.stats.sentPackets.Add(1)
		u.stats.sentBytes.Add(uint64(len(d.Data)))
	}
	if !s.spare.CompareAndSwap(nil, st) {
		s.states.Put(st)
	}
	return sent
}

// alone says whether each packet must go by itself.
func (u *UDP) alone(d *Datagrams) bool {
	return d.Len() > 1 && (u.cfg.Unsegmented || u.plainTo.has(d.Addr.Addr()))
}

func (st *sendState) load(d *Datagrams, data []byte, seg int) {
	if seg >= len(data) {
		seg = 0
	}
	st.packets[st.count] = 1
	if seg > 0 {
		st.packets[st.count] = uint64((len(data) + seg - 1) / seg)
	}
	st.msgs.load(st.count, st.sock.scope, d, data, seg)
	st.count++
}

// flush sends what was loaded from batch.
func (st *sendState) flush(u *UDP, batch []Datagrams) (int, error) {
	n, errno := st.push(u)
	if errno == nil {
		return n, nil
	}
	d := &batch[n]
	if d.Len() > 1 && (errno == unix.EIO || errno == unix.EINVAL) {
		// The way to this peer has no device that cuts, or not so.
		u.plainTo.set(d.Addr.Addr(), true)
		m, err := st.send(u, batch[n:])
		return n + m, err
	}
	return n, u.sendError(d, errno)
}

// oneByOne sends the packets of a run as messages of their own.
func (st *sendState) oneByOne(u *UDP, d *Datagrams) error {
	for k := 0; k < d.Len(); {
		for ; k < d.Len() && st.count < sendBatch; k++ {
			seg := d.Segment(k)
			renumber(d, seg, k)
			st.load(d, seg, 0)
			u.stats.unsegmented.Add(1)
		}
		if _, err := st.push(u); err != nil {
			return u.sendError(d, err)
		}
	}
	return nil
}

// push sends all that is loaded and returns how many messages went. What the
// host has no memory for is lost like on any network. In the end nothing is
// loaded.
func (st *sendState) push(u *UDP) (int, error) {
	defer func() { st.count, st.next = 0, 0 }()
	st.most = max(st.most, st.count)
	for st.next < st.count {
		from := st.next
		st.errno = 0
		var err error
		if !st.atOnce() {
			err = st.sock.raw.Write(st.write)
		}
		for i := from; i < st.next; i++ {
			u.stats.sentPackets.Add(st.packets[i])
			u.stats.sentBytes.Add(uint64(st.msgs.hdrs[i].Len))
		}
		switch {
		case err != nil:
			return st.next, err
		case st.errno == unix.ENOBUFS:
			u.stats.sendFailed.Add(st.packets[st.next])
			st.next++
		case st.errno != 0:
			return st.next, st.errno
		}
	}
	return st.next, nil
}

// forget lets the collector have what was sent.
func (st *sendState) forget() {
	for i := range st.most {
		st.msgs.iovs[i].Base = nil
	}
	st.most = 0
}
