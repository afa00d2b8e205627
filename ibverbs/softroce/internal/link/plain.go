package link

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"sync"
	"syscall"

	"github.com/purerdma/purerdma/ibverbs/softroce/internal/wire"
	"github.com/purerdma/purerdma/internal/cause"
)

// plainSend sends each packet by a call of its own, all with Identification 0.
func (s *socket) plainSend(u *UDP, batch []Datagrams) (int, error) {
	for i := range batch {
		d := &batch[i]
		if err := u.check(d); err != nil {
			return i, err
		}
		to := s.to(&u.cfg, d.Addr)
		for k := range d.Len() {
			seg := d.Segment(k)
			renumber(d, seg, k)
			if _, _, err := s.udp.WriteMsgUDPAddrPort(seg, nil, to); err != nil {
				if errors.Is(err, syscall.ENOBUFS) {
					u.stats.sendFailed.Add(1)
					continue
				}
				return i, u.sendError(d, rootErrno(err))
			}
			u.stats.sentPackets.Add(1)
			u.stats.sentBytes.Add(uint64(len(seg)))
			u.stats.unsegmented.Add(1)
		}
	}
	return len(batch), nil
}

// renumber makes segment k one that is sent alone.
func renumber(d *Datagrams, seg []byte, k int) {
	if k > 0 && d.Addr.Addr().Is4() && len(seg) >= wire.BTHSize+wire.ICRCSize {
		wire.Renumber(seg, uint16(k), 0)
	}
}

// plainReceiver has a goroutine that reads ahead into a few buffers: package
// net has no portable read that does not wait.
type plainReceiver struct {
	u          *UDP
	free, full chan *plainBuffer
	lent       []*plainBuffer
	closed     chan struct{}
	done       sync.WaitGroup
}

type plainBuffer struct {
	from netip.AddrPort
	n    int
	data [9216]byte // a jumbo frame
}

const plainBuffers = 64

func newPlainReceiver(u *UDP) *plainReceiver {
	r := &plainReceiver{
		u: u, closed: make(chan struct{}),
		free: make(chan *plainBuffer, plainBuffers), full: make(chan *plainBuffer, plainBuffers),
	}
	for range plainBuffers {
		r.free <- new(plainBuffer)
	}
	r.done.Go(r.pump)
	return r
}

func (r *plainReceiver) pump() {
	for {
		var b *plainBuffer
		select {
		case b = <-r.free:
		case <-r.closed:
			return
		}
		var err error
		if b.n, b.from, err = r.u.main.udp.ReadFromUDPAddrPort(b.data[:]); err != nil {
			// Anything but the end is about one packet, an ICMP message
			// mostly, and not about the socket.
			if errors.Is(err, net.ErrClosed) {
				return
			}
			r.free <- b
			continue
		}
		b.from = netip.AddrPortFrom(b.from.Addr().Unmap().WithZone(""), b.from.Port())
		r.full <- b
	}
}

func (r *plainReceiver) giveBack() {
	for _, b := range r.lent {
		r.free <- b
	}
	r.lent = r.lent[:0]
}

func (r *plainReceiver) fill(d *Datagrams, b *plainBuffer) {
	*d = Datagrams{Addr: b.from, Data: b.data[:b.n]}
	r.lent = append(r.lent, b)
	r.u.stats.came(d)
}

func (r *plainReceiver) try(batch []Datagrams) (n int, err error) {
	r.giveBack()
	return r.more(batch, 0)
}

func (r *plainReceiver) more(batch []Datagrams, n int) (int, error) {
	for n < len(batch) {
		select {
		case b := <-r.full:
			r.fill(&batch[n], b)
			n++
			continue
		case <-r.closed:
			return n, net.ErrClosed
		default:
		}
		break
	}
	return n, nil
}

func (r *plainReceiver) wait(ctx context.Context, batch []Datagrams) (int, error) {
	r.giveBack()
	select {
	case b := <-r.full:
		r.fill(&batch[0], b)
		return r.more(batch, 1)
	case <-r.closed:
		return 0, net.ErrClosed
	case <-ctx.Done():
		return 0, cause.Of(ctx)
	}
}

func (r *plainReceiver) close() {
	close(r.closed)
	r.done.Wait()
}
