//go:build hw && linux

package ibverbs_test

import (
	"errors"
	"maps"
	"os"
	"os/exec"
	"testing"

	"github.com/purerdma/purerdma/ibverbs"
	"github.com/purerdma/purerdma/internal/hwtest"
	"github.com/purerdma/purerdma/lab"
	"github.com/purerdma/purerdma/qp"
)

// Connections that come and go leave neither objects in the kernel nor files in the process.
func TestConnectionsLeaveNothing(t *testing.T) {
	p := hwtest.Pick(t)
	var device *ibverbs.Device
	for _, d := range get(ibverbs.Devices())(t) {
		if d.Info().Name == p.Device {
			device = d
		}
	}
	resources, err := device.Resources()
	if err != nil && (lab.Inside() || !errors.Is(err, ibverbs.ErrNotSupported)) {
		t.Fatal(err)
	}
	if resources.Counts == nil {
		t.Logf("files alone are counted: %v", err)
	}
	count := func() (objects map[ibverbs.ResourceKind]int, files int) {
		if resources.Counts != nil {
			objects = get(device.Resources())(t).Counts
		}
		return objects, len(get(os.ReadDir("/proc/self/fd"))(t))
	}
	cycle := func() {
		dev := get(device.Open())(t)
		x := newTested(t, dev, qp.WithPort(p.Port), qp.WithGIDIndex(p.GID.Index))
		x.works(t)
		x.close(t)
		try(t, dev.Close())
	}
	cycle() // what is made once
	objects, files := count()
	for range 100 {
		cycle()
	}
	if now, open := count(); !maps.Equal(now, objects) || open != files {
		t.Errorf("before %v and %d files, after %v and %d", objects, files, now, open)
	}
}

// Programs that are started meanwhile, which fork, take no page of registered memory away.
func TestChildProcessesDoNotDisturbMemory(t *testing.T) {
	p := hwtest.Pick(t)
	dev := p.Open(t)
	x := newTested(t, dev, qp.WithPort(p.Port), qp.WithGIDIndex(p.GID.Index))
	half := get(x.buf.Slice(100, 2048))(t) // half a page
	m := get(x.pd.RegMR(half, ibverbs.LocalWrite))(t)
	for range 5 {
		if out, err := exec.CommandContext(t.Context(), "true").CombinedOutput(); err != nil {
			t.Fatalf("%v %s", err, out)
		}
		x.works(t)
	}
	child := exec.CommandContext(t.Context(), "sleep", "60")
	try(t, child.Start())
	x.works(t)
	try(t, child.Process.Kill())
	_ = child.Wait() // was killed
	x.works(t)
	try(t, m.Close())
	x.close(t)
}
