package qp

import (
	"context"
	"errors"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/purerdma/purerdma/ibverbs"
	"github.com/purerdma/purerdma/ibverbs/driver/memdriver"
)

// TestConnectRefuses changes one field of an Info that was well. Nothing may
// reach the device.
func TestConnectRefuses(t *testing.T) {
	infiniband := port(memdriver.PortConfig{LinkLayer: ibverbs.LinkInfiniBand})
	for _, tt := range []struct {
		name   string
		device memdriver.DeviceConfig
		change func(*Info)
		says   string
	}{
		{"QP number 0", memdriver.DeviceConfig{}, func(i *Info) { i.QPN = 0 }, "QP number 0x0"},
		{"QP number 1", memdriver.DeviceConfig{}, func(i *Info) { i.QPN = 1 }, "QP number 0x1"},
		{"QP number of 25 bits", memdriver.DeviceConfig{}, func(i *Info) { i.QPN = 1 << 24 }, "QP number"},
		{"PSN of 25 bits", memdriver.DeviceConfig{}, func(i *Info) { i.PSN = 1 << 24 }, "sequence number"},
		{"MTU 0", memdriver.DeviceConfig{}, func(i *Info) { i.MTU = 0 }, "MTU code 0"},
		{"MTU 6", memdriver.DeviceConfig{}, func(i *Info) { i.MTU = 6 }, "MTU code 6"},
		{"MTU in bytes", memdriver.DeviceConfig{}, func(i *Info) { i.MTU = 255 }, "MTU code 255"},
		{"other link layer", memdriver.DeviceConfig{}, func(i *Info) { i.LinkLayer = ibverbs.LinkInfiniBand }, "link layer is InfiniBand"},
		{"no link layer", memdriver.DeviceConfig{}, func(i *Info) { i.LinkLayer = 0 }, "link layer is Unspecified"},
		{"no GID", memdriver.DeviceConfig{}, func(i *Info) { i.GID = ibverbs.GID{} }, "GID is empty"},
		{"IPv4 0.0.0.0", memdriver.DeviceConfig{}, func(i *Info) { i.GID = gid("::ffff:0.0.0.0") }, "GID is empty"},
		{"group", memdriver.DeviceConfig{}, func(i *Info) { i.GID = gid("::ffff:239.1.1.1") }, "that of a group"},
		{"other family", memdriver.DeviceConfig{}, func(i *Info) { i.GID = gid("fd00::1") }, "is IPv6"},
		{"LID 0", infiniband, func(i *Info) { i.LID = 0 }, "LID 0x0"},
		{"LID of a group", infiniband, func(i *Info) { i.LID = 0xc000 }, "LID 0xc000"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			e := ends(t, tt.device, tt.device)
			a, b := e[0].qp(t), e[1].qp(t)
			peer := b.Info()
			tt.change(&peer)
			err := a.Connect(peer)
			var verbs *ibverbs.Error
			if !errors.Is(err, syscall.EINVAL) || !errors.As(err, &verbs) || verbs.Peer == "" || !strings.Contains(err.Error(), tt.says) {
				t.Errorf("%v", err)
			}
			if s := query(t, a).State; s != ibverbs.StateInit {
				t.Errorf("the QP is in %v", s)
			}
			if err := a.Connect(b.Info()); err != nil {
				t.Errorf("with the right Info: %v", err)
			}
		})
	}
}

func TestConnectTwice(t *testing.T) {
	e := ends(t, memdriver.DeviceConfig{})[0]
	a := e.qp(t)
	if err := a.Connect(a.Info()); err != nil {
		t.Fatal(err)
	}
	if err := a.Connect(a.Info()); !errors.Is(err, ibverbs.ErrBadState) || !strings.Contains(err.Error(), "RTS") {
		t.Error(err)
	}
	if err := errors.Join(a.Close(), a.Close()); err != nil {
		t.Error(err)
	}
}

// TestRTRRetries has the peer's address resolve at the last try but two, and
// then not at all, at NCCL's times.
func TestRTRRetries(t *testing.T) {
	for _, tt := range []struct {
		name  string
		fails int
		opts  []Option
		after time.Duration
		ok    bool
	}{
		{"at once", 0, nil, 0, true},
		{"at the third try", 2, nil, 300 * time.Millisecond, true},
		{"at the last try", 34, nil, 59500 * time.Millisecond, true},
		{"never", 35, nil, 59500 * time.Millisecond, false},
		{"no retries", 1, []Option{WithRTRRetries(0, time.Second)}, 0, false},
		{"own times", 2, []Option{WithRTRRetries(2, time.Second)}, 3 * time.Second, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				e := ends(t, memdriver.DeviceConfig{}, memdriver.DeviceConfig{})
				a, b := e[0].qp(t, tt.opts...), e[1].qp(t)
				e[0].mem.FailNext(memdriver.OpModifyQP, slices.Repeat([]error{syscall.ETIMEDOUT}, tt.fails)...)
				began := time.Now()
				err := a.Connect(b.Info())
				if took := time.Since(began); took != tt.after {
					t.Errorf("took %v, want %v", took, tt.after)
				}
				if tt.ok != (err == nil) {
					t.Fatal(err)
				}
				if tt.ok {
					return
				}
				var verbs *ibverbs.Error
				if !errors.Is(err, syscall.ETIMEDOUT) || !errors.As(err, &verbs) || !strings.Contains(verbs.Hint, "ARP") || verbs.Peer == "" {
					t.Error(err)
				}
				if s := a.State(); s != ibverbs.StateInit {
					t.Errorf("the QP is in %v", s)
				}
			})
		})
	}
}

func TestRTRNoRetryOfOthers(t *testing.T) {
	e := ends(t, memdriver.DeviceConfig{}, memdriver.DeviceConfig{})
	a, b := e[0].qp(t), e[1].qp(t)
	e[0].mem.FailNext(memdriver.OpModifyQP, syscall.ENODEV)
	if err := a.Connect(b.Info()); !errors.Is(err, syscall.ENODEV) || !strings.Contains(err.Error(), "another network namespace") {
		t.Error(err)
	}
	e[0].mem.FailNext(memdriver.OpModifyQP, nil, syscall.EINVAL)
	if err := a.Connect(b.Info()); !errors.Is(err, syscall.EINVAL) || !strings.Contains(err.Error(), "RTS") || !strings.Contains(err.Error(), "peer QP") {
		t.Error(err)
	}
}

// TestConnectContext ends the waits, and before the first try.
func TestConnectContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := ends(t, memdriver.DeviceConfig{}, memdriver.DeviceConfig{})
		a, b := e[0].qp(t), e[1].qp(t)
		e[0].mem.FailNext(memdriver.OpModifyQP, slices.Repeat([]error{syscall.ETIMEDOUT}, 4)...)
		ctx, cancel := context.WithTimeout(t.Context(), 450*time.Millisecond)
		defer cancel()
		began := time.Now()
		err := a.ConnectContext(ctx, b.Info())
		if !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, syscall.ETIMEDOUT) || !strings.Contains(err.Error(), "after 3 tries") {
			t.Error(err)
		}
		if took := time.Since(began); took != 450*time.Millisecond {
			t.Errorf("took %v", took)
		}
		if err := a.ConnectContext(ctx, b.Info()); !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, syscall.ETIMEDOUT) {
			t.Error(err)
		}
		if err := a.ConnectContext(t.Context(), b.Info()); err != nil {
			t.Error(err)
		}
	})
}
