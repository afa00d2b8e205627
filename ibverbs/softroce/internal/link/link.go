package link

import (
	"context"
	"net/netip"
)

// Datagrams are the payloads of one or more UDP datagrams to or from one peer.
// All are Seg bytes long but the last, which may be shorter.
type Datagrams struct {
	// Addr is the peer: to whom (its port is 4791), or from whom. Without a
	// zone; IPv4 is never in IPv6 form.
	Addr netip.AddrPort
	// SrcPort is the port it leaves from: the port of a [Link.Source], or 0 for
	// the one of LocalAddr. Of what came it is 0.
	SrcPort uint16
	// TOS is the type of service or traffic class, with the ECN bits lowest.
	TOS uint8
	// ID is the IPv4 Identification of the first segment, each next one having
	// one more; only of what came, and only where Link.ShowsID.
	ID uint16
	// Seg is the size of a segment; 0 means that Data is one.
	Seg  int
	Data []byte
}

// Limits of one Datagrams to send.
const (
	MaxData     = 65_487 // bytes of one super-packet, so that IP headers fit
	MaxSegments = 64     // that the kernel cuts
)

// Segments is how many segments of size seg go into one Datagrams.
func Segments(seg int) int { return max(1, min(MaxSegments, MaxData/max(1, seg))) }

// Len is the number of segments.
func (d *Datagrams) Len() int {
	if d.Seg <= 0 || d.Seg >= len(d.Data) {
		return 1
	}
	return (len(d.Data) + d.Seg - 1) / d.Seg
}

// Segment is the bytes of segment k.
func (d *Datagrams) Segment(k int) []byte {
	if d.Seg <= 0 {
		return d.Data
	}
	rest := d.Data[k*d.Seg:]
	n := min(d.Seg, len(rest))
	return rest[:n:n]
}

// Stats are counters since the link was made.
type Stats struct {
	SentPackets, SentBytes uint64 // handed over, UDP payload
	RecvPackets, RecvBytes uint64
	SendFailed             uint64 // packets that the host refused to send
	RecvDropped            uint64 // packets for which the receive buffer had no room, as far as the host tells
	Unsegmented            uint64 // packets sent one by one because the way to a peer does not cut
}

// A Link is one address on a network. See the package for who may call what and
// who owns the bytes.
type Link interface {
	// LocalAddr is the address that peers send to, with port 4791.
	LocalAddr() netip.AddrPort

	// Source is the address and port that a flow leaves from, the same each
	// time for the same hash. The port is inside the ICRC: seal for it and set
	// SrcPort.
	Source(hash uint32) netip.AddrPort

	// MTU is that of the network device in bytes, as the system has it: 1500,
	// 65536 on loopback. wire.PathMTU makes the RoCE MTU of it.
	MTU() int

	// RecvBuffer is the bytes of memory that datagrams may take before they are
	// read, as the system charges them, which is up to twice their size and
	// more for small ones.
	RecvBuffer() int

	// ShowsID says whether Datagrams.ID of what comes is what was on the wire.
	ShowsID() bool

	// Send hands the batch over in order and returns how many of it it did. It
	// waits at most for room in the host's send buffer, never for a peer. It
	// returns early only with an error, which is about batch[n]; the caller may
	// go on behind it.
	Send(batch []Datagrams) (n int, err error)

	// Recv waits until something has come and fills batch from its start. It
	// may fill less than there is. A batch of 4 is enough. After Close the error
	// is net.ErrClosed; when ctx is done, its cause.
	Recv(ctx context.Context, batch []Datagrams) (n int, err error)

	// TryRecv is Recv without waiting: 0 when nothing is there.
	TryRecv(batch []Datagrams) (n int, err error)

	// Stats may be called at any time.
	Stats() Stats

	// Close frees the address and ends Recv. Twice is nil.
	Close() error
}

// Shared is a Link from which several goroutines may take in turn, under a lock of
// theirs, while another one sleeps without it.
type Shared interface {
	Link
	// Awaits says whether it can; if not, Await fails.
	Awaits() bool
	// Await sleeps until something may have come, which others may have taken by
	// then. One goroutine may call it at a time, TryRecv may be called meanwhile.
	// After Close the error is net.ErrClosed.
	Await() error
	// Rouse ends an Await that is going on, if it can at once. A socket on which somebody
	// sleeps costs each packet more, which nobody need pay where others take them. Any
	// goroutine may call it.
	Rouse()
}

// Classifier is a Link that tells the type of service of what comes, Datagrams.TOS, only
// when it is asked to. All others tell it always, if they can.
type Classifier interface {
	// ShowClass asks for it, from now on. It may be called again.
	ShowClass() error
}

// PortWatcher is a Link whose port can go down and come up.
type PortWatcher interface {
	// OnPort calls f with each change, after those that came before have
	// returned; nil ends it. f must not call the link.
	OnPort(f func(up bool))
	// Up says how the port is.
	Up() bool
}
