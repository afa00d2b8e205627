package ibverbs_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"

	"github.com/purerdma/purerdma/ibverbs"
	"github.com/purerdma/purerdma/ibverbs/driver/memdriver"
)

// machine is a fabric with devices that differ in all by which one can be
// chosen.
func machine() *memdriver.Driver {
	linkLocal := []ibverbs.GIDEntry{{GID: ibverbs.GID{0xfe, 0x80, 15: 9}, Type: ibverbs.GIDTypeRoCEv2, NetDev: "eth9"}}
	return memdriver.New(memdriver.Config{Devices: []memdriver.DeviceConfig{
		{Name: "soft"},
		{Name: "down", PCI: "0000:01:00.0", Hardware: true, Ports: []memdriver.PortConfig{{State: ibverbs.PortDown}}},
		{Name: "local", PCI: "0000:02:00.0", Hardware: true, Ports: []memdriver.PortConfig{{GIDs: linkLocal}}},
		{Name: "broken", PCI: "0000:03:00.0", Hardware: true},
		{Name: "good", PCI: "0000:04:00.0", Hardware: true, Ports: []memdriver.PortConfig{{State: ibverbs.PortDown}, {}}},
	}})
}

func TestOpenByName(t *testing.T) {
	fabric := machine()
	for name, want := range map[string]string{
		"soft":           "soft",
		"0000:02:00.0":   "local",
		"good":           "good",
		"eth9":           "local",
		"fe80::9":        "local",
		"10.77.4.2":      "good",
		"::ffff:a4d:402": "good",
	} {
		dev, err := ibverbs.Open(name, ibverbs.WithDrivers(fabric))
		if err != nil {
			t.Errorf("open %q: %v", name, err)
			continue
		}
		if got := dev.Info().Name; got != want {
			t.Errorf("open %q: got %s, want %s", name, got, want)
		}
		try(t, dev.Close())
	}
	_, err := ibverbs.Open("mlx5_7", ibverbs.WithDrivers(fabric))
	if !errors.Is(err, ibverbs.ErrNoDevice) || !errors.Is(err, syscall.ENODEV) || !strings.Contains(err.Error(), "soft") {
		t.Errorf("open of no device: %v, want ENODEV and the names that exist", err)
	}
	_, err = ibverbs.Open("", ibverbs.WithDrivers(memdriver.New(memdriver.Config{Devices: []memdriver.DeviceConfig{}})))
	if !errors.Is(err, ibverbs.ErrNoDevice) {
		t.Errorf("open on a machine without devices: %v", err)
	}
	for _, name := range []string{"soft", "local", "good", "down"} {
		if contexts, _ := fabric.Device(name).Leaks(); contexts != 0 {
			t.Errorf("%d contexts of %s are left open", contexts, name)
		}
	}
}

// The best device is hardware that is up and can route; the log says why.
func TestOpenBest(t *testing.T) {
	fabric := machine()
	fabric.Device("broken").FailNext(memdriver.OpOpen, syscall.EACCES)
	var log bytes.Buffer
	open := func() string {
		t.Helper()
		dev := get(ibverbs.Open("", ibverbs.WithDrivers(fabric), ibverbs.WithLogger(slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug})))))(t)
		defer func() { try(t, dev.Close()) }()
		return dev.Info().Name
	}
	if got := open(); got != "good" {
		t.Errorf("chose %s, want good", got)
	}
	for _, word := range []string{"good", "down: no active port", "local: no routable GID", "EACCES"} {
		if !strings.Contains(log.String(), word) {
			t.Errorf("log %q does not say %q", &log, word)
		}
	}
	fabric.Remove("good")
	fabric.Remove("broken")
	if got := open(); got != "soft" {
		t.Errorf("chose %s, want soft, which has a routable GID", got)
	}
	fabric.Remove("soft")
	if got := open(); got != "local" {
		t.Errorf("chose %s, want local", got)
	}
	fabric.Remove("local")
	if _, err := ibverbs.Open("", ibverbs.WithDrivers(fabric)); !errors.Is(err, ibverbs.ErrNoDevice) || !strings.Contains(err.Error(), "no active port on down") {
		t.Errorf("with only a port that is down: %v", err)
	}
	fabric.Device("down").FailNext(memdriver.OpOpen, syscall.EACCES)
	if _, err := ibverbs.Open("", ibverbs.WithDrivers(fabric)); !errors.Is(err, syscall.EACCES) || strings.Count(err.Error(), "EACCES") != 1 {
		t.Errorf("with only a device that may not be opened: %v", err)
	}
}

// Hardware comes first; a driver that cannot list does not hide the others.
func TestDevices(t *testing.T) {
	found := get(ibverbs.Devices(ibverbs.WithDrivers(machine())))(t)
	var names []string
	for _, d := range found {
		names = append(names, d.Info().Name)
	}
	if got := strings.Join(names, " "); got != "down local broken good soft" {
		t.Errorf("devices %s", got)
	}
}

func TestWatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fabric := memdriver.New(memdriver.Config{})
		ctx, cancel := context.WithCancel(context.Background())
		lists := ibverbs.Watch(ctx, ibverbs.WithDrivers(fabric))
		if l := <-lists; len(l) != 1 {
			t.Errorf("%d devices at first", len(l))
		}
		synctest.Wait()
		for range 3 { // a slow reader gets the newest
			fabric.Add(memdriver.DeviceConfig{})
			synctest.Wait()
		}
		if l := <-lists; len(l) != 4 {
			t.Errorf("%d devices after three came", len(l))
		}
		fabric.Remove("mem2")
		if l := <-lists; len(l) != 3 {
			t.Errorf("%d devices after one went", len(l))
		}
		cancel()
		if _, more := <-lists; more {
			t.Error("a list after the end")
		}
	})
}
