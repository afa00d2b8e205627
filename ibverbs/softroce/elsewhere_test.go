package softroce_test

import (
	"context"
	"errors"
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/purerdma/purerdma/ibverbs"
	"github.com/purerdma/purerdma/ibverbs/softroce"
	"github.com/purerdma/purerdma/qp"
)

// A peer on another machine whose device is at a loopback address cannot be reached, and the error says so; of other addresses it does not.
func TestPeerBehindLoopback(t *testing.T) {
	for peer, want := range map[string]bool{"127.0.0.1": true, "10.0.0.1": false} {
		synctest.Test(t, func(t *testing.T) {
			nw := softroce.OnSim(softroce.NewSim(softroce.SimConfig{}))
			at := netip.MustParseAddr(peer)
			dev, err := ibverbs.Open("soft0", ibverbs.WithDrivers(softroce.New(softroce.Config{Addrs: []netip.Addr{at}, Network: nw})))
			if err != nil {
				t.Fatal(err)
			}
			defer dev.Close()
			pd, err := dev.AllocPD()
			if err != nil {
				t.Fatal(err)
			}
			cq, err := dev.CreateCQ(1, ibverbs.WithEvents())
			if err != nil {
				t.Fatal(err)
			}
			q, err := qp.New(pd, cq, cq, qp.WithTimeout(1, 1))
			if err != nil {
				t.Fatal(err)
			}
			there := q.Info()
			there.QPN ^= 1
			there.GID = ibverbs.GID(at.Next().As16())
			if err := q.Connect(there); err != nil {
				t.Fatal(err)
			}
			if _, err := q.PostSend(ibverbs.SendWR{Op: ibverbs.OpWrite, Flags: ibverbs.Signaled}); err != nil {
				t.Fatal(err)
			}
			var wcs [1]ibverbs.WC
			if _, err := cq.Wait(context.Background(), wcs[:]); err != nil {
				t.Fatal(err)
			}
			if err := cq.Err(&wcs[0]); !errors.Is(err, ibverbs.RetryExcErr) || strings.Contains(err.Error(), "PURERDMA_SOFTROCE_ADDRS") != want {
				t.Errorf("peer next to %s: %v", peer, err)
			}
		})
	}
}
