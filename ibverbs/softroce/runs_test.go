package softroce

import (
	"net/netip"
	"slices"
	"testing"
	"testing/synctest"

	"github.com/purerdma/purerdma/ibverbs/driver"
	"github.com/purerdma/purerdma/ibverbs/softroce/internal/link"
)

// shapes notes how many packets each of the Datagrams of a call has that addrA sends.
type shapes struct {
	Network
	calls *[][]int
}

type shapedLink struct {
	Link
	calls *[][]int
}

func (s shapes) Open(addr netip.Addr) (Link, error) {
	l, err := s.Network.Open(addr)
	if addr != addrA {
		return l, err
	}
	return shapedLink{l, s.calls}, err
}

func (l shapedLink) Send(batch []link.Datagrams) (int, error) {
	var call []int
	for i := range batch {
		call = append(call, batch[i].Len())
	}
	*l.calls = append(*l.calls, call)
	return l.Link.Send(batch)
}

// An ACK that goes with one packet leaves in the same call and not in its run, which
// would be slower than two packets; with several it makes no difference, and joins them.
func TestAckBesideRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var calls [][]int
		drv := New(Config{Addrs: []netip.Addr{addrA, addrB}, Network: shapes{OnSim(NewSim(SimConfig{})), &calls}})
		ea, eb := openDevices(t, drv, "soft0", "soft1")
		a, b := newUDPEnd(t, ea), newUDPEnd(t, eb)
		a.connect(b)
		b.connect(a)
		_, key := b.mr.Keys()
		wr := driver.SendWR{Op: driver.OpWrite, Inline: make([]byte, 8), Remote: driver.Remote{Addr: b.mem.Addr(), RKey: key}}
		q := a.q.(*qp)
		for requests, want := range [][]int{1: {1, 1}, 2: {3}, 3: {4}} {
			q.mu.Lock()
			before := len(calls)
			q.resp.replies.ack = requests > 0
			for range requests {
				q.queueSend(&wr)
			}
			q.transmit()
			if got := slices.Concat(calls[before:]...); !slices.Equal(got, want) || len(calls)-before > 1 {
				t.Errorf("%d requests and an ACK: %v, want %v in one call", requests, calls[before:], want)
			}
			q.mu.Unlock()
			synctest.Wait()
		}
	})
}
