package ibverbs_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/purerdma/purerdma/ibverbs"
	"github.com/purerdma/purerdma/ibverbs/driver"
	"github.com/purerdma/purerdma/ibverbs/driver/memdriver"
)

// Each subscription gets each event once; equal ones merge and are counted.
func TestSubscriptions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := connect(t)
		switches := e.fabric.Device("mem0")
		early, both := e.dev.Subscribe(), e.dev.Subscribe()
		for range 3 {
			switches.SetPort(1, ibverbs.PortDown)
		}
		switches.SetPort(1, ibverbs.PortActive)
		switches.RaiseQP(e.qps[1].Num(), driver.EventCommEst)
		synctest.Wait()
		late := e.dev.Subscribe()
		try(t, early.Close())
		switches.SetGIDs(1, []ibverbs.GIDEntry{{GID: ibverbs.GID{1}, Type: ibverbs.GIDTypeRoCEv2}})
		synctest.Wait()

		down := ibverbs.Event{Type: ibverbs.EventPortErr, Port: 1, Count: 3}
		up := ibverbs.Event{Type: ibverbs.EventPortActive, Port: 1, Count: 1}
		established := ibverbs.Event{Type: driver.EventCommEst, Count: 1, Object: e.qps[1]}
		gids := ibverbs.Event{Type: ibverbs.EventGIDChange, Port: 1, Count: 1}
		for name, c := range map[string]struct {
			sub  *ibverbs.Subscription
			want []ibverbs.Event
		}{
			"closed": {early, []ibverbs.Event{down, up, established}},
			"open":   {both, []ibverbs.Event{down, up, established, gids}},
			"late":   {late, []ibverbs.Event{gids}},
		} {
			for _, want := range c.want {
				if got, err := c.sub.Next(deadline(t)); got != want || err != nil {
					t.Errorf("%s: %+v, %v; want %+v", name, got, err, want)
				}
			}
			ctx, cancel := context.WithTimeout(context.Background(), time.Hour)
			end := context.DeadlineExceeded
			if c.sub == early {
				end = ibverbs.ErrClosed
			}
			if ev, err := c.sub.Next(ctx); !errors.Is(err, end) {
				t.Errorf("%s: %+v, %v; want %v", name, ev, err, end)
			}
			cancel()
		}
		try(t, both.Close())
		try(t, late.Close())
	})
}

// Who takes the events of a port that went up and down late still learns how it ended, and what is of which port.
func TestFlappingPorts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fabric := memdriver.New(memdriver.Config{})
		dev := open(t, fabric)
		sub := dev.Subscribe()
		defer sub.Close()
		for _, ev := range []driver.Event{{Type: ibverbs.EventPortErr, Port: 1}, {Type: ibverbs.EventPortErr, Port: 2}, {Type: ibverbs.EventPortActive, Port: 1},
			{Type: ibverbs.EventPortActive, Port: 2}, {Type: ibverbs.EventPortErr, Port: 1}} {
			fabric.Device("mem0").Raise(ev)
		}
		synctest.Wait()
		for _, want := range []ibverbs.Event{{Type: ibverbs.EventPortErr, Port: 2, Count: 1}, {Type: ibverbs.EventPortActive, Port: 1, Count: 1},
			{Type: ibverbs.EventPortActive, Port: 2, Count: 1}, {Type: ibverbs.EventPortErr, Port: 1, Count: 2}} {
			if got := get(sub.Next(deadline(t)))(t); got != want {
				t.Errorf("%+v, want %+v", got, want)
			}
		}
	})
}

// Closing wakes all who wait for events.
func TestSubscriptionEnds(t *testing.T) {
	for name, end := range map[string]func(*ends, *ibverbs.Subscription) error{
		"subscription": func(_ *ends, s *ibverbs.Subscription) error { return s.Close() },
		"context":      func(e *ends, _ *ibverbs.Subscription) error { return e.dev.Close() },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				e := connect(t)
				sub := e.dev.Subscribe()
				errs := make(chan error, 3)
				for range cap(errs) {
					go func() { _, err := sub.Next(context.Background()); errs <- err }()
				}
				synctest.Wait()
				try(t, end(e, sub))
				for range cap(errs) {
					if err := <-errs; !errors.Is(err, ibverbs.ErrClosed) {
						t.Errorf("Next: %v", err)
					}
				}
			})
		})
	}
}

// The GID table is remembered until the device says that it changed.
func TestGIDsAreRememberedUntilTheyChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fabric := memdriver.New(memdriver.Config{})
		dev := open(t, fabric)
		switches := fabric.Device("mem0")
		first := get(dev.GIDs(1))(t)
		first[0] = ibverbs.GIDEntry{} // ours to change
		switches.FailNext(memdriver.OpGIDs, errors.New("asked the device again"))
		if again := get(dev.GIDs(1))(t); again[0].GID.IsZero() {
			t.Error("the caller's slice is the remembered one")
		}
		want := ibverbs.GIDEntry{GID: ibverbs.GID{2}, Index: 5, Type: ibverbs.GIDTypeRoCEv2}
		switches.SetGIDs(1, []ibverbs.GIDEntry{want})
		synctest.Wait()
		if _, err := dev.GIDs(1); err == nil {
			t.Error("after a change the device was not asked")
		}
		if got := get(dev.GIDs(1))(t); len(got) != 1 || got[0] != want {
			t.Errorf("GIDs are %+v, want %+v", got, want)
		}
	})
}

// A device that dies fails all that was made from it, and can be closed.
func TestDeviceFatal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := connect(t, ibverbs.WithEvents())
		sub := e.dev.Subscribe()
		defer sub.Close()
		e.fabric.Device("mem0").Fatal()
		if ev := get(sub.Next(deadline(t)))(t); ev.Type != ibverbs.EventDeviceFatal {
			t.Errorf("event %+v", ev)
		}
		for name, err := range map[string]error{
			"PostSend": second(e.qps[0].PostSend(e.write(1, 8))),
			"PostRecv": second(e.qps[0].PostRecv(ibverbs.RecvWR{})),
			"Poll":     second(e.cqs[0].Poll(make([]ibverbs.WC, 1))),
			"Wait":     second(e.cqs[0].Wait(deadline(t), make([]ibverbs.WC, 1))),
			"AllocPD":  second(e.dev.AllocPD()),
			"Query":    second(e.dev.Query()),
		} {
			if !errors.Is(err, ibverbs.ErrDeviceGone) {
				t.Errorf("%s: %v, want %v", name, err, ibverbs.ErrDeviceGone)
			}
		}
		try(t, e.qps[0].Close())
		try(t, e.mem.Close())
	})
}

func second[T any](_ T, err error) error { return err }
