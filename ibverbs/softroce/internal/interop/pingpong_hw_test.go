//go:build hw && linux

package interop

import (
	"fmt"
	"testing"

	"github.com/purerdma/purerdma/ibverbs"
	"github.com/purerdma/purerdma/internal/pingpong"
)

// pingpongs runs the programs of rdma-core on the kernel's device against us on
// softroce: half of the combinations of role, IP version and path MTU in which each
// two of them meet, polled and with events in turn.
func (f *fixture) pingpongs(t *testing.T) {
	for _, s := range []pingpong.Session{
		{Kind: pingpong.RC, Size: 5000},
		{Kind: pingpong.UC, Size: 5000},
		{Kind: pingpong.UD, Size: 4096},
		{Kind: pingpong.SRQ, Size: 5000, QPs: 4},
	} {
		t.Run(string(s.Kind), func(t *testing.T) {
			if need := s.Kind.Needs(); need != "" {
				if err := f.v4.soft.dev.Probe(need); err != nil {
					t.Skip(err)
				}
			}
			s.Rounds, s.Depth = 60, 50
			f.eachPingpong(t, s)
		})
	}
}

func (f *fixture) eachPingpong(t *testing.T, s pingpong.Session) {
	for i, mtu := range []ibverbs.MTU{ibverbs.MTU1024, ibverbs.MTU4096} {
		for j, p := range []pair{f.v4, f.v6} {
			for k, cServes := range []bool{true, false} {
				if (i+j+k)%2 == 1 && !everything() {
					continue
				}
				s.MTU, s.Events = mtu, j == 0
				name := fmt.Sprintf("MTU %d, %v, C serves %v, events %v", mtu.Bytes(), p.soft.place.GID.GID.Addr(), cServes, s.Events)
				t.Run(name, func(t *testing.T) { s.Run(t, p.soft.dev, p.soft.place, p.kernel.place, cServes) })
			}
		}
	}
}
