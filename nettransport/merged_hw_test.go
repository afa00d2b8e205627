//go:build hw

package nettransport

import (
	"fmt"
	"testing"

	"github.com/purerdma/purerdma/internal/hwtest"
	"github.com/purerdma/purerdma/lab"
	"github.com/purerdma/purerdma/qp"
)

// TestMergedDevices moves messages and groups between logical NICs of one and two real devices, and flushes.
func TestMergedDevices(t *testing.T) {
	if !lab.Inside() {
		t.Skip("needs two devices of which each reaches both; known of the lab only")
	}
	seed := hwtest.Seed(t)
	for _, devs := range [][2]int{{1, 2}, {2, 1}, {2, 2}} {
		t.Run(fmt.Sprintf("%d to %d", devs[0], devs[1]), func(t *testing.T) {
			open := func(name string) Port {
				return Port{Device: hwtest.Place{Device: name, Port: 1}.Open(t)}
			}
			f := &fabric{send: NIC{open("rxe0"), open("rxe1")}[:devs[0]], recv: NIC{open("rxe1"), open("rxe0")}[:devs[1]]}
			c := Config{QPsPerConn: 2, QP: []qp.Option{qp.WithGID(qp.GIDWant{Family: qp.IPv4})}}
			r := c
			r.Flush = true
			p := connect(t, f, c, r)
			p.transfer(edges(4)[:14], seed)
			p.groups(8, seed)
			for _, path := range append(p.send.Paths(), p.recv.Paths()...) {
				t.Log(path)
			}
			m, _ := memory(t, &p.recv.Comm, 4096)
			q, ok, err := p.recv.Flush(Buffer{MR: m, N: 1})
			if !ok || err != nil {
				t.Fatal(ok, err)
			}
			if err := q.Wait(t.Context(), nil); err != nil {
				t.Fatal(err)
			}
		})
	}
}
