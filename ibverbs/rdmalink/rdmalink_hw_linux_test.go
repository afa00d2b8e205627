//go:build hw

package rdmalink

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/purerdma/purerdma/ibverbs"
	"github.com/purerdma/purerdma/lab"
)

func names(ds []*ibverbs.Device) (all []string) {
	for _, d := range ds {
		all = append(all, d.Info().Name)
	}
	return all
}

// Devices that come, go and come again on the same node are seen each time, can be opened, and are gone when they were deleted.
func TestDevicesComeAndGo(t *testing.T) {
	if !lab.Inside() {
		t.Skip("makes devices, so it runs only in the lab's guest (lab/vm)")
	}
	if out, err := exec.CommandContext(t.Context(), "sh", "-c", "ip link add d7 type dummy && ip link set d7 up").CombinedOutput(); err != nil {
		t.Fatalf("%v %s", err, out)
	}
	defer func() {
		if out, err := exec.CommandContext(context.Background(), "ip", "link", "del", "d7").CombinedOutput(); err != nil {
			t.Errorf("%v %s", err, out)
		}
	}()
	if m, err := Mode(); m != Shared || err != nil {
		t.Errorf("namespace mode %q, %v", m, err)
	}
	if err := SetMode(Shared); err != nil {
		t.Error(err)
	}
	if err := Add("rxe9", SoftRoCE, "v0"); !errors.Is(err, syscall.EEXIST) {
		t.Errorf("a second device on v0: %v", err)
	}
	if err := Add("rxe9", SoftRoCE, "nowhere"); err == nil {
		t.Error("a device on a net device that is not there")
	}
	if err := Delete("rxe9"); !errors.Is(err, ibverbs.ErrNoDevice) {
		t.Errorf("delete of no device: %v", err)
	}

	ctx, cancel := context.WithCancel(t.Context())
	lists := ibverbs.Watch(ctx)
	defer func() {
		cancel()
		for range lists {
		}
	}()
	until := func(there bool, name string) {
		t.Helper()
		for deadline := time.After(time.Minute); ; {
			select {
			case l := <-lists:
				if slices.Contains(names(l), name) == there {
					return
				}
			case <-deadline:
				t.Fatalf("%s: %v was not told in a minute", name, there)
			}
		}
	}
	for i := range 20 {
		name := []string{"rocep1s0f0", "rxe7"}[i%2] // another device on the same node each time
		if err := Add(name, SoftRoCE, "d7"); err != nil {
			t.Fatal(err)
		}
		until(true, name)
		dev, err := ibverbs.Open(name)
		if err != nil {
			t.Fatal(err)
		}
		if in := dev.Info(); in.Driver != "rxe" || in.Name != name {
			t.Errorf("%+v", in)
		}
		if netDev, _, err := dev.NetDevice(1); netDev != "d7" || err != nil {
			t.Errorf("net device %q, %v", netDev, err)
		}
		if err := dev.Close(); err != nil {
			t.Error(err)
		}
		if err := Delete(name); err != nil {
			t.Fatal(err)
		}
		until(false, name)
	}
}

// A device of the list that is another by now is not opened under the old name.
func TestStaleListOpensNothingElse(t *testing.T) {
	if !lab.Inside() {
		t.Skip("makes devices, so it runs only in the lab's guest (lab/vm)")
	}
	if out, err := exec.CommandContext(t.Context(), "sh", "-c", "ip link add d8 type dummy && ip link set d8 up").CombinedOutput(); err != nil {
		t.Fatalf("%v %s", err, out)
	}
	defer func() { _ = exec.CommandContext(context.Background(), "ip", "link", "del", "d8").Run() }()
	if err := Add("old0", SoftRoCE, "d8"); err != nil {
		t.Fatal(err)
	}
	found, err := ibverbs.Devices()
	if err != nil {
		t.Fatal(err)
	}
	i := slices.Index(names(found), "old0")
	if i < 0 {
		t.Fatalf("%v", names(found))
	}
	if err := Delete("old0"); err != nil {
		t.Fatal(err)
	}
	if err := Add("new0", SoftRoCE, "d8"); err != nil {
		t.Fatal(err)
	}
	dev, err := found[i].Open()
	if err == nil {
		t.Errorf("opened %+v", dev.Info())
		_ = dev.Close()
	}
	t.Log(err)
	if err := Delete("new0"); err != nil {
		t.Error(err)
	}
}

// Forty devices are all listed, in order, with their net devices.
func TestFortyDevices(t *testing.T) {
	if !lab.Inside() {
		t.Skip("makes devices, so it runs only in the lab's guest (lab/vm)")
	}
	script := "for i in $(seq 0 39); do ip link add many$i type dummy && ip link set many$i up || exit; done"
	if out, err := exec.CommandContext(t.Context(), "sh", "-c", script).CombinedOutput(); err != nil {
		t.Fatalf("%v %s", err, out)
	}
	defer func() {
		_ = exec.CommandContext(context.Background(), "sh", "-c", "for i in $(seq 0 39); do ip link del many$i; done").Run()
	}()
	for i := range 40 {
		name := fmt.Sprintf("forty%02d", i)
		if err := Add(name, SoftRoCE, fmt.Sprintf("many%d", i)); err != nil {
			t.Fatal(err)
		}
		defer func() {
			if err := Delete(name); err != nil {
				t.Error(err)
			}
		}()
	}
	found, err := ibverbs.Devices()
	if err != nil {
		t.Error(err)
	}
	all := slices.DeleteFunc(names(found), func(n string) bool { return len(n) != len("forty00") })
	if len(all) != 40 || !slices.IsSorted(all) {
		t.Errorf("%d: %v", len(all), all)
	}
}

// A device on a bond of two net devices is known as one, is found by the bond, stays up while one of them is, and goes down with the last.
func TestDeviceOnABond(t *testing.T) {
	if !lab.Inside() {
		t.Skip("makes devices, so it runs only in the lab's guest (lab/vm)")
	}
	sh := func(ctx context.Context, script string) {
		t.Helper()
		if out, err := exec.CommandContext(ctx, "sh", "-ec", script).CombinedOutput(); err != nil {
			t.Fatalf("%s: %v %s", script, err, out)
		}
	}
	defer sh(context.Background(), "ip link del bond7; ip link del s1; ip link del s2")
	sh(t.Context(), "ip link add bond7 type bond mode active-backup miimon 50; for s in s1 s2; do ip link add $s type dummy; ip link set $s master bond7; done; "+
		"ip link set bond7 up; ip link set s1 up; ip link set s2 up; ip address add 10.70.0.1/24 dev bond7")
	if err := Add("rxe7", SoftRoCE, "bond7"); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := Delete("rxe7"); err != nil {
			t.Error(err)
		}
	}()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	until := func(what string, is func() bool) {
		t.Helper()
		for !is() {
			select {
			case <-ctx.Done():
				t.Fatalf("%s: not within a minute", what)
			case <-time.After(50 * time.Millisecond):
			}
		}
	}
	until("its GIDs tell the bond", func() bool {
		ds, err := ibverbs.Devices()
		return err == nil && slices.ContainsFunc(ds, func(d *ibverbs.Device) bool { return d.Info().Name == "rxe7" && d.Info().Bond == "bond7" })
	})
	dev, err := ibverbs.Open("bond7")
	if err != nil {
		t.Fatal(err)
	}
	defer dev.Close()
	if name, _, err := dev.NetDevice(1); dev.Info().Name != "rxe7" || name != "bond7" || err != nil {
		t.Errorf("%s on net device %q, %v", dev.Info().Name, name, err)
	}
	state := func(want ibverbs.PortState) func() bool {
		return func() bool { a, err := dev.Port(1); return err == nil && a.State == want }
	}
	active := func(want string) func() bool {
		return func() bool {
			b, err := os.ReadFile("/sys/class/net/bond7/bonding/active_slave")
			return err == nil && strings.TrimSpace(string(b)) == want
		}
	}
	until("the port is active", state(ibverbs.PortActive))
	sh(ctx, "ip link set s1 down")
	until("the other one takes over", active("s2"))
	if !state(ibverbs.PortActive)() {
		t.Error("the port went down with one of two")
	}
	sh(ctx, "ip link set s2 down")
	until("the port is down with both", state(ibverbs.PortDown))
	sh(ctx, "ip link set s1 up")
	until("the port is active again", state(ibverbs.PortActive))
}
