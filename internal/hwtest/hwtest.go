// Package hwtest chooses what tests with the build tag hw run on: of all devices
// of the machine that could serve, one by chance, so that a fault which spares
// the first device, port 1 or GID index 0 is met sooner or later. The choice
// and its seed are printed; PURERDMA_SEED repeats it.
package hwtest

import (
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"testing"

	"github.com/purerdma/purerdma/ibverbs"
	"github.com/purerdma/purerdma/lab"
)

// Place is a port of a device with one of its GIDs.
type Place struct {
	Device string
	Port   int
	GID    ibverbs.GIDEntry
	MTU    ibverbs.MTU // active
	Link   ibverbs.LinkLayer
}

// String names the place as people do: "rxe0/1, GID 1 (::ffff:10.9.0.1, RoCE v2)".
func (p Place) String() string {
	return fmt.Sprintf("%s/%d, GID %d (%v, %v), MTU %v", p.Device, p.Port, p.GID.Index, p.GID.GID, p.GID.Type, p.MTU)
}

// Seed is PURERDMA_SEED, or a new one. It is printed.
func Seed(t testing.TB) uint64 {
	t.Helper()
	seed := rand.Uint64()
	if s := os.Getenv("PURERDMA_SEED"); s != "" {
		var err error
		if seed, err = strconv.ParseUint(s, 0, 64); err != nil {
			t.Fatalf("PURERDMA_SEED: %v", err)
		}
	}
	t.Logf("PURERDMA_SEED=%d", seed)
	return seed
}

// Rand is a source with Seed.
func Rand(t testing.TB) *rand.Rand {
	t.Helper()
	return rand.New(rand.NewPCG(Seed(t), 0))
}

// Places is every active port with every GID that can carry traffic. A test is
// skipped if there is none, with what was found instead. Devices in user space
// are left out: C programs see none of them, and package softroce has tests of
// its own.
func Places(t testing.TB) []Place {
	t.Helper()
	found, err := ibverbs.Devices()
	if err != nil {
		t.Logf("some devices could not be listed: %v", err)
	}
	var places []Place
	var passed []string
	for _, d := range found {
		if d.Info().Driver == softroce {
			passed = append(passed, d.Info().Name+": it is in user space")
			continue
		}
		dev, err := d.Open()
		if err != nil {
			passed = append(passed, err.Error())
			continue
		}
		for port := 1; port <= dev.Info().Ports; port++ {
			here, why := placesOf(dev, port)
			places = append(places, here...)
			if len(here) == 0 {
				passed = append(passed, fmt.Sprintf("%s/%d: %s", dev.Info().Name, port, why))
			}
		}
		if err := dev.Close(); err != nil {
			t.Errorf("close %s: %v", dev.Info().Name, err)
		}
	}
	if len(places) == 0 {
		t.Skipf("needs an RDMA device with an active port and a GID; found %d devices: %v", len(found), passed)
	}
	return places
}

// softroce is the driver of devices in user space.
const softroce = "softroce"

func placesOf(dev *ibverbs.Context, port int) (places []Place, why string) {
	a, err := dev.Port(port)
	if err != nil {
		return nil, err.Error()
	}
	if a.State != ibverbs.PortActive {
		return nil, "state " + a.State.String()
	}
	gids, err := dev.GIDs(port)
	if err != nil {
		return nil, err.Error()
	}
	for _, g := range gids {
		if a.LinkLayer == ibverbs.LinkEthernet && g.Type != ibverbs.GIDTypeRoCEv2 {
			continue
		}
		places = append(places, Place{Device: dev.Info().Name, Port: port, GID: g, MTU: a.ActiveMTU, Link: a.LinkLayer})
	}
	return places, "no GID of RoCE v2"
}

// Pick is a place by chance.
func Pick(t testing.TB) Place {
	t.Helper()
	places := Places(t)
	p := places[Rand(t).IntN(len(places))]
	t.Logf("runs on %v", p)
	return p
}

// Pair is two places that reach each other: in the lab the two ends of the link
// or twice the same port, elsewhere a port with itself. same asks for the
// latter.
func Pair(t testing.TB, same bool) (a, b Place) {
	t.Helper()
	places := Places(t)
	r := Rand(t)
	a = places[r.IntN(len(places))]
	b = a
	if !same && lab.Inside() {
		var others []Place
		for _, p := range places {
			if p.Device != a.Device && scope(p) == scope(a) {
				others = append(others, p)
			}
		}
		if len(others) == 0 {
			t.Fatalf("the lab has no device beside %v that could be its peer: %v", a, places)
		}
		b = others[r.IntN(len(others))]
	}
	t.Logf("runs between %v and %v", a, b)
	return a, b
}

// scope tells addresses apart that do not reach each other.
func scope(p Place) string {
	switch addr := p.GID.GID.Addr(); {
	case addr.Is4():
		return "IPv4"
	case addr.IsLinkLocalUnicast():
		return "link"
	}
	return "IPv6"
}

// Open opens the device of a place and closes it at the end of the test, which
// fails if the test left objects open.
func (p Place) Open(t testing.TB) *ibverbs.Context {
	t.Helper()
	dev, err := ibverbs.Open(p.Device)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if left := dev.Objects(); len(left) > 0 && !t.Failed() {
			t.Errorf("objects left open on %s: %v", p.Device, left)
		}
		if err := dev.Close(); err != nil {
			t.Errorf("close %s: %v", p.Device, err)
		}
	})
	return dev
}
