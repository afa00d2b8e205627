package qp

import (
	"errors"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/purerdma/purerdma/ibverbs/driver/memdriver"
)

func lanes(es []end) []Lane {
	var all []Lane
	for _, e := range es {
		all = append(all, Lane{PD: e.pd, SendCQ: e.cq, RecvCQ: e.cq})
	}
	return all
}

func infos(b *Bundle) []Info {
	var all []Info
	for _, q := range b.QPs {
		all = append(all, q.Info())
	}
	return all
}

// TestBundle makes five QPs on two devices against five on one.
func TestBundle(t *testing.T) {
	e := ends(t, memdriver.DeviceConfig{Name: "a"}, memdriver.DeviceConfig{Name: "b"}, memdriver.DeviceConfig{Name: "c"})
	near, err := NewBundle(lanes(e[:2]), 5, func(q int) []Option { return []Option{WithFlowLabel(uint32(q + 1))} })
	if err != nil {
		t.Fatal(err)
	}
	far, err := NewBundle(lanes(e[2:]), 5, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(near.Connect(t.Context(), infos(far)), far.Connect(t.Context(), infos(near))); err != nil {
		t.Fatal(err)
	}
	for i, q := range near.QPs {
		p := q.Path()
		if want := []string{"a", "b", "a", "b", "a"}[i]; p.Device != want || p.FlowLabel != uint32(i+1) || p.RemoteQPN != far.QPs[i].Num() {
			t.Errorf("QP %d: %v, want device %s", i, p, want)
		}
	}
	if err := near.Connect(t.Context(), infos(far)[:4]); !errors.Is(err, syscall.EINVAL) || !strings.Contains(err.Error(), "5 QPs here, 4 at the peer") {
		t.Error(err)
	}
	for range 2 {
		if err := errors.Join(near.Close(), far.Close()); err != nil {
			t.Error(err)
		}
	}
}

// TestNext is the rule of the wire: the cursor goes on from message to message.
func TestNext(t *testing.T) {
	for _, tt := range []struct {
		qps, k int
		want   [][]int
	}{
		{1, 1, [][]int{{0}, {0}, {0}}},
		{4, 1, [][]int{{0}, {1}, {2}, {3}, {0}}},
		{4, 4, [][]int{{0, 1, 2, 3}, {0, 1, 2, 3}}},
		{4, 2, [][]int{{0, 1}, {2, 3}, {0, 1}}},
		{5, 2, [][]int{{0, 1}, {2, 3}, {4, 0}, {1, 2}}},
		{3, 2, [][]int{{0, 1}, {2, 0}, {1, 2}, {0, 1}}},
	} {
		b := &Bundle{}
		for range tt.qps {
			b.QPs = append(b.QPs, &QP{})
		}
		for i, want := range tt.want {
			var got []int
			for _, q := range b.Next(tt.k, nil) {
				got = append(got, slices.Index(b.QPs, q))
			}
			if !slices.Equal(got, want) {
				t.Errorf("%d QPs, %d a message, message %d: %v, want %v", tt.qps, tt.k, i, got, want)
			}
		}
	}
}

func TestNextNoAllocations(t *testing.T) {
	b := &Bundle{QPs: []*QP{{}, {}, {}}}
	dst := make([]*QP, 0, 4)
	if n := testing.AllocsPerRun(100, func() { dst = b.Next(4, dst[:0]) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func TestNewBundleRefuses(t *testing.T) {
	e := ends(t, memdriver.DeviceConfig{}, memdriver.DeviceConfig{})
	for _, n := range []int{-1, 0, 129} {
		if _, err := NewBundle(lanes(e), n, nil); !errors.Is(err, syscall.EINVAL) {
			t.Errorf("%d QPs: %v", n, err)
		}
	}
	if _, err := NewBundle(nil, 1, nil); !errors.Is(err, syscall.EINVAL) {
		t.Error(err)
	}
	e[1].mem.FailNext(memdriver.OpCreateQP, nil, syscall.ENOMEM)
	if _, err := NewBundle(lanes(e), 4, nil); !errors.Is(err, syscall.ENOMEM) {
		t.Error(err)
	}
	for _, one := range e {
		if left := one.dev.Objects(); len(left) != 2 {
			t.Errorf("left open: %v", left)
		}
	}
}

func TestLaneOptions(t *testing.T) {
	e := ends(t, memdriver.DeviceConfig{})
	lane := lanes(e)[0]
	lane.Options = append(make([]Option, 0, 8), WithTrafficClass(3))
	b, err := NewBundle([]Lane{lane}, 2, func(q int) []Option { return []Option{WithServiceLevel(uint8(q + 1))} })
	if err != nil {
		t.Fatal(err)
	}
	for i, q := range b.QPs {
		if p := q.params; p.TrafficClass != 3 || p.ServiceLevel != uint8(i+1) {
			t.Errorf("QP %d: %+v", i, p)
		}
	}
}
