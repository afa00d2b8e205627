package link

import "golang.org/x/sys/unix"

// merging is whether the kernel merges the packets of a socket (UDP GRO). A long message
// wants it. A packet that comes by itself is dearer with it: the kernel touches one more
// cache line of the packet, and only recvmsg, which copies more than recvfrom, says how
// long the pieces of a merged one are. So it goes off while nothing else comes.
type merging struct {
	on   bool
	able bool // it can be changed
	few  int  // lone small packets in a row
}

const (
	// smallPacket is the longest that counts as small: less than a path MTU.
	smallPacket = 240
	// manyAtOnce packets in one call are a stream.
	manyAtOnce = 4
	// fewForOff is after how many lone small packets merging goes off. Two system calls for
	// as many packets are no harm, should someone send such that it goes on and off.
	fewForOff = 64
)

// weigh looks at the n messages that have come.
func (r *fastReceiver) weigh(n int) {
	m := &r.merging
	if !m.able {
		return
	}
	alone := n < manyAtOnce
	for i := range n {
		h := &r.msgs.hdrs[i]
		alone = alone && h.Len <= smallPacket && (!m.on || h.Hdr.Controllen == 0)
	}
	switch {
	case alone && m.on:
		m.few++
	case !alone:
		if m.few = 0; !m.on {
			m.on = true
			m.able = r.setMerging(1)
		}
	}
}

// stopMerging is called when nothing was there. What had come merged before merging went off
// would come without the length of its pieces; if there is anything, merging goes on.
//
// A packet that another processor has in hands just then, merged, is damaged in the eyes of
// who reads it, and counts as lost. None had been merged for long.
func (r *fastReceiver) stopMerging() {
	m := &r.merging
	m.few = 0
	if m.able = r.setMerging(0); !m.able {
		return
	}
	if r.msgs.empty(uintptr(r.fd.fd)) {
		m.on = false
		return
	}
	m.able = r.setMerging(1)
}

func (r *fastReceiver) setMerging(on int) bool {
	return unix.SetsockoptInt(r.fd.fd, unix.IPPROTO_UDP, unix.UDP_GRO, on) == nil
}
