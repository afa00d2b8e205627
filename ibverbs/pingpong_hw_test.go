//go:build hw && linux

package ibverbs_test

import (
	"fmt"
	"testing"

	"github.com/purerdma/purerdma/internal/hwtest"
	"github.com/purerdma/purerdma/internal/pingpong"
)

// Full sessions against the programs of rdma-core, C that nobody here wrote: both
// roles, polled and with events, on one device and between two.
func TestPingpongWithC(t *testing.T) {
	for _, s := range []pingpong.Session{
		{Kind: pingpong.RC, Size: 4096},
		{Kind: pingpong.UC, Size: 4096},
		{Kind: pingpong.UD, Size: 1000},
		{Kind: pingpong.SRQ, Size: 4096, QPs: 4},
	} {
		t.Run(string(s.Kind), func(t *testing.T) {
			if need := s.Kind.Needs(); need != "" {
				if err := hwtest.Pick(t).Open(t).Probe(need); err != nil {
					t.Skip(err)
				}
			}
			s.Rounds, s.Depth = 200, 100
			eachPingpong(t, s)
		})
	}
}

func eachPingpong(t *testing.T, s pingpong.Session) {
	for _, same := range []bool{true, false} {
		if same && s.Kind != pingpong.RC {
			continue // the lab's time; one device with itself is in the conformance suite
		}
		for _, cServes := range []bool{true, false} {
			for _, events := range []bool{false, true} {
				name := fmt.Sprintf("same device %v, C serves %v, events %v", same, cServes, events)
				t.Run(name, func(t *testing.T) {
					ours, theirs := hwtest.Pair(t, same)
					s.Events = events
					s.Run(t, ours.Open(t), ours, theirs, cServes)
				})
			}
		}
	}
}
