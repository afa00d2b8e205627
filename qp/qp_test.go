package qp

import (
	"errors"
	"strings"
	"syscall"
	"testing"

	"github.com/purerdma/purerdma/ibverbs"
	"github.com/purerdma/purerdma/ibverbs/driver/memdriver"
)

// TestNCCLAttributes holds every attribute that NCCL 2.25 sets, on RoCE.
func TestNCCLAttributes(t *testing.T) {
	e := ends(t, port(memdriver.PortConfig{ActiveMTU: ibverbs.MTU4096}), port(memdriver.PortConfig{ActiveMTU: ibverbs.MTU1024}))
	a, b := e[0].qp(t), e[1].qp(t)

	if c := a.Cap(); c.SendWR < 512 || c.RecvWR < 256 || c.SendSGE < 1 || c.RecvSGE < 1 {
		t.Errorf("sizes %+v", c)
	}
	got := query(t, a)
	if got.State != ibverbs.StateInit || got.Port != 1 || got.PKeyIndex != 0 || got.Access != ibverbs.RemoteWrite {
		t.Errorf("in INIT: %+v", got)
	}
	if err := errors.Join(a.Connect(b.Info()), b.Connect(a.Info())); err != nil {
		t.Fatal(err)
	}
	got = query(t, a)
	got.CurState, got.Cap = 0, ibverbs.QPCap{}
	want := ibverbs.QPAttr{
		State: ibverbs.StateRTS, PathMTU: ibverbs.MTU1024, DestQPN: b.Num(), RQPSN: 0, SQPSN: 0,
		Access: ibverbs.RemoteWrite, Port: 1,
		MaxDestRdAtomic: 1, MaxRdAtomic: 1, MinRNRTimer: 12, Timeout: 20, RetryCnt: 7, RNRRetry: 7,
		AH: ibverbs.AHAttr{IsGlobal: true, DGID: b.Info().GID, SGIDIndex: 1, HopLimit: 255, Port: 1},
	}
	if got != want {
		t.Errorf("in RTS:\n%+v, want\n%+v", got, want)
	}
	if m := query(t, b).PathMTU; m != ibverbs.MTU1024 {
		t.Errorf("the other end has a path MTU of %v", m)
	}
}

// TestOptions changes every attribute.
func TestOptions(t *testing.T) {
	e := ends(t, memdriver.DeviceConfig{Ports: []memdriver.PortConfig{{}, {}}}, memdriver.DeviceConfig{})
	opts := []Option{
		WithPort(2), WithGIDIndex(0), WithPKeyIndex(0), WithDepth(33, 17), WithSGEs(3), WithInline(64), WithSendPSN(0xabcdef),
		WithFlowLabel(0x12345), WithTrafficClass(106), WithServiceLevel(3), WithHopLimit(9), WithTimeout(14, 5), WithRNR(6, 1),
		WithRdAtomic(4, 8), WithMTU(ibverbs.MTU2048), WithAccess(ibverbs.RemoteRead | ibverbs.LocalWrite | ibverbs.RemoteWrite),
	}
	a, b := e[0].qp(t, opts...), e[1].qp(t, WithSendPSN(77), WithGIDIndex(0))
	if c := a.Cap(); c.SendWR < 33 || c.RecvWR < 17 || c.SendSGE < 3 || c.Inline < 64 {
		t.Errorf("sizes %+v", c)
	}
	info := a.Info()
	if info.PSN != 0xabcdef || info.Port != 2 || info.MTU != ibverbs.MTU2048 || info.QPN != a.Num() || info.LinkLayer != ibverbs.LinkEthernet {
		t.Errorf("%+v", info)
	}
	if err := errors.Join(a.Connect(b.Info()), b.Connect(info)); err != nil {
		t.Fatal(err)
	}
	got := query(t, a)
	got.CurState, got.Cap = 0, ibverbs.QPCap{}
	want := ibverbs.QPAttr{
		State: ibverbs.StateRTS, PathMTU: ibverbs.MTU2048, DestQPN: b.Num(), RQPSN: 77, SQPSN: 0xabcdef,
		Access: ibverbs.RemoteRead | ibverbs.LocalWrite | ibverbs.RemoteWrite, Port: 2,
		MaxDestRdAtomic: 8, MaxRdAtomic: 4, MinRNRTimer: 1, Timeout: 14, RetryCnt: 5, RNRRetry: 6,
		AH: ibverbs.AHAttr{IsGlobal: true, DGID: b.Info().GID, SGIDIndex: 0, HopLimit: 9, Port: 2, FlowLabel: 0x12345, TrafficClass: 106, SL: 3},
	}
	if got != want {
		t.Errorf("in RTS:\n%+v, want\n%+v", got, want)
	}
	if m := query(t, b).PathMTU; m != ibverbs.MTU2048 {
		t.Errorf("the other end has a path MTU of %v", m)
	}
	p := a.Path()
	if p.UDPSourcePort != UDPSourcePort(0x12345, 0, 0) || p.Remote != b.Info().GID || p.GIDIndex != 0 || p.MTU != ibverbs.MTU2048 ||
		!strings.Contains(p.String(), "flow label 0x12345") || !strings.Contains(p.String(), "UDP source port ") {
		t.Errorf("%v", p)
	}
}

func TestRandomPSN(t *testing.T) {
	e := ends(t, memdriver.DeviceConfig{})[0]
	if got := e.qp(t, WithRandomPSN(func() uint32 { return 0xfedcba98 })).Info().PSN; got != 0xdcba98 {
		t.Errorf("%#x", got)
	}
	seen := map[uint32]bool{}
	for range 4 {
		seen[e.qp(t, WithRandomPSN(nil)).Info().PSN] = true
	}
	if len(seen) == 1 {
		t.Errorf("four times the same: %v", seen)
	}
}

// TestInfiniBand is the address of a peer within the subnet and beyond it.
func TestInfiniBand(t *testing.T) {
	ib := func(prefixes ...uint64) memdriver.DeviceConfig {
		var table []ibverbs.GIDEntry
		for i, p := range prefixes {
			e := ibverbs.GIDEntry{Index: i, Type: ibverbs.GIDTypeIB, GID: ibverbs.GID{14: 0x12, 15: byte(i + 1)}}
			for j := range 8 {
				e.GID[j] = byte(p >> (56 - 8*j))
			}
			table = append(table, e)
		}
		return port(memdriver.PortConfig{LinkLayer: ibverbs.LinkInfiniBand, GIDs: table})
	}
	const own, other, routable = 0xfe80_0000_0000_0000, 0xfec0_0000_0000_0007, 0xfec0_0000_4321_0007
	for _, tt := range []struct {
		name string
		peer memdriver.DeviceConfig
		want ibverbs.AHAttr // LID and DGID are filled in
		flid uint16
	}{
		{"same subnet", ib(own), ibverbs.AHAttr{Port: 1, SL: 2}, 0},
		{"other subnet", ib(other), ibverbs.AHAttr{Port: 1, SL: 2, IsGlobal: true, HopLimit: 255, FlowLabel: 5}, 0},
		{"other subnet with FLID", ib(other, routable), ibverbs.AHAttr{Port: 1, SL: 2, IsGlobal: true, HopLimit: 255, FlowLabel: 5}, 0x4321},
	} {
		t.Run(tt.name, func(t *testing.T) {
			e := ends(t, ib(own), tt.peer)
			a, b := e[0].qp(t, WithServiceLevel(2), WithTrafficClass(9), WithFlowLabel(5)), e[1].qp(t)
			peer := b.Info()
			if err := a.Connect(peer); err != nil {
				t.Fatal(err)
			}
			tt.want.DLID = peer.LID
			if tt.flid != 0 {
				tt.want.DLID = tt.flid
			}
			if tt.want.IsGlobal {
				tt.want.DGID = peer.GID
			}
			if got := query(t, a).AH; got != tt.want {
				t.Errorf("%+v, want %+v", got, tt.want)
			}
			if a.Path().UDPSourcePort != 0 {
				t.Error("InfiniBand with a UDP port")
			}
		})
	}
}

func TestNewRefuses(t *testing.T) {
	healthy := memdriver.DeviceConfig{}
	for _, tt := range []struct {
		name   string
		device memdriver.DeviceConfig
		opt    Option
		is     error
		says   string
	}{
		{"port down", port(memdriver.PortConfig{State: ibverbs.PortDown}), nil, syscall.ENETDOWN, "port is DOWN"},
		{"port 2 of 1", healthy, WithPort(2), syscall.EINVAL, "port"},
		{"port 0", healthy, WithPort(0), syscall.EINVAL, "Port is not"},
		{"no GID", port(memdriver.PortConfig{GIDs: []ibverbs.GIDEntry{}}), nil, ErrNoGID, "mem0/1"},
		{"empty GID index", healthy, WithGIDIndex(9), ErrNoGID, "index 9"},
		{"GID index -2", healthy, WithGIDIndex(-2), syscall.EINVAL, "GIDIndex"},
		{"no send queue", healthy, WithDepth(0, 1), syscall.EINVAL, "SendDepth"},
		{"queue larger than the device's", healthy, WithDepth(1<<20, 1), syscall.EINVAL, "create QP"},
		{"PSN", healthy, WithSendPSN(1 << 24), syscall.EINVAL, "SendPSN"},
		{"flow label", healthy, WithFlowLabel(1 << 20), syscall.EINVAL, "FlowLabel"},
		{"service level", healthy, WithServiceLevel(16), syscall.EINVAL, "ServiceLevel"},
		{"timeout", healthy, WithTimeout(32, 7), syscall.EINVAL, "Timeout"},
		{"retry", healthy, WithTimeout(20, 8), syscall.EINVAL, "Retry"},
		{"RNR retry", healthy, WithRNR(8, 12), syscall.EINVAL, "RNRRetry"},
		{"RNR timer", healthy, WithRNR(7, 32), syscall.EINVAL, "MinRNR"},
		{"MTU", healthy, WithMTU(6), syscall.EINVAL, "MTU"},
		{"retries", healthy, WithRTRRetries(-1, 0), syscall.EINVAL, "RTRRetries"},
		{"partition key", healthy, WithPKeyIndex(5), syscall.EINVAL, "INIT"},
		{"all at once", healthy, WithParams(Params{}), syscall.EINVAL, "Port"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			e := ends(t, tt.device)[0]
			before := len(e.dev.Objects())
			var opts []Option
			if tt.opt != nil {
				opts = append(opts, tt.opt)
			}
			_, err := New(e.pd, e.cq, e.cq, opts...)
			var verbs *ibverbs.Error
			if !errors.Is(err, tt.is) || !errors.As(err, &verbs) || !strings.Contains(err.Error(), tt.says) {
				t.Errorf("%v", err)
			}
			if left := e.dev.Objects(); len(left) != before {
				t.Errorf("left open: %v", left)
			}
		})
	}
}

// TestInfoMTU is the smaller of the port's and what is asked for.
func TestInfoMTU(t *testing.T) {
	for _, tt := range []struct{ port, asked, want ibverbs.MTU }{
		{ibverbs.MTU1024, 0, ibverbs.MTU1024}, {ibverbs.MTU1024, ibverbs.MTU4096, ibverbs.MTU1024}, {ibverbs.MTU4096, ibverbs.MTU256, ibverbs.MTU256},
	} {
		e := ends(t, port(memdriver.PortConfig{ActiveMTU: tt.port}))[0]
		if got := e.qp(t, WithMTU(tt.asked)).Info().MTU; got != tt.want {
			t.Errorf("port of %v, asked for %v: %v", tt.port, tt.asked, got)
		}
	}
}

// A nil option counts for nothing, a nil PD is refused, and a queue pair that was closed says so.
func TestNilAndClosed(t *testing.T) {
	e := ends(t, memdriver.DeviceConfig{})[0]
	q := e.qp(t, nil, WithDepth(4, 4), nil)
	peer := e.qp(t).Info()
	if err := q.Close(); err != nil {
		t.Fatal(err)
	}
	if err := q.Connect(peer); !errors.Is(err, ibverbs.ErrClosed) {
		t.Errorf("Connect of a closed queue pair: %v", err)
	}
	if _, err := New(nil, e.cq, e.cq); !errors.Is(err, syscall.EINVAL) {
		t.Errorf("a nil PD: %v", err)
	}
	if _, err := NewBundle([]Lane{{}}, 1, nil); !errors.Is(err, syscall.EINVAL) {
		t.Errorf("a lane without PD: %v", err)
	}
	if _, err := NewLoopback(nil, nil, 1); !errors.Is(err, syscall.EINVAL) {
		t.Errorf("a loopback without PD: %v", err)
	}
}
