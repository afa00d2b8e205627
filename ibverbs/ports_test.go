package ibverbs_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/purerdma/purerdma/ibverbs"
	"github.com/purerdma/purerdma/ibverbs/driver"
	"github.com/purerdma/purerdma/ibverbs/driver/memdriver"
	"github.com/purerdma/purerdma/qp"
)

// Adapters with several planes have many ports, of which some are active, not the first.
func TestEveryPortIsLookedAt(t *testing.T) {
	for _, n := range []int{2, 12, 255} {
		ports := make([]memdriver.PortConfig, n)
		for i := range ports {
			ports[i].State = ibverbs.PortDown
		}
		ports[n-1].State = ibverbs.PortActive
		fabric := memdriver.New(memdriver.Config{Devices: []memdriver.DeviceConfig{{Name: "mem0", Ports: ports}}})
		var log bytes.Buffer
		dev := get(ibverbs.Open("", ibverbs.WithDrivers(fabric), ibverbs.WithLogger(slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug})))))(t)
		if !strings.Contains(log.String(), fmt.Sprintf("port=%d ", n)) {
			t.Errorf("%d ports: %s", n, log.String())
		}
		addr := get(dev.GIDs(n))(t)[1].GID.Addr().String()
		try(t, dev.Close())
		dev = get(ibverbs.Open(addr, ibverbs.WithDrivers(fabric)))(t)
		try(t, dev.Close())
	}
}

// shared is a driver two of whose devices belong to one net device, told in the wrong order.
type shared struct{ driver.Driver }

func (shared) FindNetDevice(name string) []string {
	if name == "bond0" {
		return []string{"mem2", "mem1"}
	}
	return nil
}

// A net device of two RDMA devices names both, and the first of the list is taken each time.
func TestNetDeviceOfTwoDevices(t *testing.T) {
	fabric := memdriver.New(memdriver.Config{Devices: make([]memdriver.DeviceConfig, 3)})
	for range 10 {
		var log bytes.Buffer
		dev := get(ibverbs.Open("bond0", ibverbs.WithDrivers(shared{fabric}), ibverbs.WithLogger(slog.New(slog.NewTextHandler(&log, nil)))))(t)
		if got := dev.Info().Name; got != "mem1" || !strings.Contains(log.String(), "mem1") || !strings.Contains(log.String(), "mem2") {
			t.Errorf("opened %s, logged %s", got, log.String())
		}
		try(t, dev.Close())
	}
}

// An event of one port is that port's, whatever their number.
func TestEventsAreOfTheirPort(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fabric := memdriver.New(memdriver.Config{Devices: []memdriver.DeviceConfig{{Name: "mem0", Ports: make([]memdriver.PortConfig, 3)}}})
		dev := open(t, fabric)
		sub := dev.Subscribe()
		defer sub.Close()
		before := [...][]ibverbs.GIDEntry{get(dev.GIDs(1))(t), get(dev.GIDs(2))(t), get(dev.GIDs(3))(t)}
		now := []ibverbs.GIDEntry{{GID: ibverbs.GID{0xfd, 15: 7}, Index: 4, Type: ibverbs.GIDTypeRoCEv2}}
		fabric.Device("mem0").SetGIDs(2, now)
		fabric.Device("mem0").SetPort(3, ibverbs.PortDown)
		for _, want := range []ibverbs.Event{{Type: ibverbs.EventGIDChange, Port: 2, Count: 1}, {Type: ibverbs.EventPortErr, Port: 3, Count: 1}} {
			if got := get(sub.Next(deadline(t)))(t); got != want {
				t.Errorf("%+v, want %+v", got, want)
			}
		}
		synctest.Wait()
		for port, want := range map[int][]ibverbs.GIDEntry{1: before[0], 2: now, 3: before[2]} {
			if got := get(dev.GIDs(port))(t); !slices.Equal(got, want) {
				t.Errorf("port %d has %v", port, got)
			}
		}
	})
}

// Each event after which a table may be another makes the device be asked again.
func TestEventsThatForgetGIDs(t *testing.T) {
	for name, raise := range map[string]func(*memdriver.Device){
		"GID_CHANGE": func(d *memdriver.Device) { d.SetGIDs(1, []ibverbs.GIDEntry{{GID: ibverbs.GID{1}}}) },
		"PORT_ERR":   func(d *memdriver.Device) { d.SetPort(1, ibverbs.PortDown) },
		"PORT_ACTIVE": func(d *memdriver.Device) {
			d.SetPort(1, ibverbs.PortActive)
		},
	} {
		synctest.Test(t, func(t *testing.T) {
			fabric := memdriver.New(memdriver.Config{})
			dev := open(t, fabric)
			get(dev.GIDs(1))(t)
			raise(fabric.Device("mem0"))
			synctest.Wait()
			again := errors.New("asked again")
			fabric.Device("mem0").FailNext(memdriver.OpGIDs, again)
			if _, err := dev.GIDs(1); !errors.Is(err, again) {
				t.Errorf("%s: %v", name, err)
			}
		})
	}
}

// Ten thousand connections leave nothing behind, in the device or the process.
func TestTenThousandConnectionsLeaveNothing(t *testing.T) {
	fabric := memdriver.New(memdriver.Config{})
	dev := open(t, fabric)
	pd, cq := get(dev.AllocPD())(t), get(dev.CreateCQ(16))(t)
	files := func() int {
		entries, err := os.ReadDir("/proc/self/fd")
		if err != nil {
			t.Skipf("open files cannot be counted here: %v", err)
		}
		return len(entries)
	}
	open, left := files(), len(dev.Objects())
	for range 10000 {
		a, b := get(qp.New(pd, cq, cq))(t), get(qp.New(pd, cq, cq))(t)
		try(t, a.Connect(b.Info()))
		try(t, b.ConnectContext(context.Background(), a.Info()))
		try(t, a.Close())
		try(t, b.Close())
	}
	if now := files(); now != open {
		t.Errorf("%d files open before, %d after", open, now)
	}
	if now := len(dev.Objects()); now != left {
		t.Errorf("%d objects before, %d after: %v", left, now, dev.Objects())
	}
}
