//go:build hw

package kernel

import (
	"context"
	"errors"
	"math/rand/v2"
	"os"
	"os/exec"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/purerdma/purerdma/ibverbs/driver"
	"github.com/purerdma/purerdma/ibverbs/internal/uapi"
	"github.com/purerdma/purerdma/ibverbs/internal/uverbs"
	"github.com/purerdma/purerdma/lab"
)

// realNodes lists the devices of this machine.
func realNodes(t *testing.T) (World, []Node) {
	t.Helper()
	w := Default()
	nodes, broken, err := w.byNetlink()
	if errors.Is(err, syscall.EPROTONOSUPPORT) && !lab.Inside() {
		t.Skip("needs RDMA netlink, which this kernel has not")
	}
	if err != nil || len(broken) > 0 {
		t.Fatalf("listing: %v, %v", err, broken)
	}
	if len(nodes) == 0 {
		t.Skip("this machine has no RDMA device")
	}
	return w, nodes
}

// pick opens a device by chance. It needs no provider: only drivers that want
// nothing for a context are taken.
func pick(t *testing.T) (*World, Node, *Context) {
	t.Helper()
	w, nodes := realNodes(t)
	seed := rand.Uint64()
	if s := os.Getenv("PURERDMA_SEED"); s != "" {
		var err error
		if seed, err = strconv.ParseUint(s, 0, 64); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("PURERDMA_SEED=%d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	r.Shuffle(len(nodes), func(i, j int) { nodes[i], nodes[j] = nodes[j], nodes[i] })
	for _, n := range nodes {
		if n.DriverID != uapi.DriverRXE {
			continue
		}
		c, err := OpenContext(&w, n, uverbs.UHW{})
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("runs on %+v", n)
		t.Cleanup(func() {
			if err := c.Close(); err != nil {
				t.Error(err)
			}
		})
		return &w, n, c
	}
	t.Skip("this machine has no device whose context can be made without a provider's structures")
	return nil, Node{}, nil
}

// TestNetlinkAndSysfsAgree compares the two ways to list devices.
func TestNetlinkAndSysfsAgree(t *testing.T) {
	w, byNL := realNodes(t)
	bySys, broken, err := w.bySysfs()
	if err != nil || len(broken) > 0 {
		t.Fatalf("sysfs: %v, %v", err, broken)
	}
	index := func(nodes []Node) map[string]Node {
		m := map[string]Node{}
		for _, n := range nodes {
			n.Info.Index = -1 // sysfs does not tell
			m[n.Path] = n
		}
		return m
	}
	if a, b := index(byNL), index(bySys); !reflect.DeepEqual(a, b) {
		t.Errorf("netlink\n%+v\nsysfs\n%+v", a, b)
	}
}

func TestGIDsByIoctlAndSysfsAgree(t *testing.T) {
	w, n, c := pick(t)
	for port := 1; port <= n.Info.Ports; port++ {
		byIoctl, err := c.GIDs(port)
		if err != nil {
			t.Fatal(err)
		}
		bySys, err := w.sysGIDs(n.Info.Name, port)
		if err != nil {
			t.Fatal(err)
		}
		for i := range byIoctl {
			if byIoctl[i].IfIndex == 0 {
				t.Errorf("GID %d has no net device", i)
			}
			byIoctl[i].IfIndex = 0 // sysfs does not tell
		}
		if len(byIoctl) == 0 || !reflect.DeepEqual(byIoctl, bySys) {
			t.Errorf("ioctl\n%+v\nsysfs\n%+v", byIoctl, bySys)
		}
	}
}

func TestNetDeviceOfARealDevice(t *testing.T) {
	w, n, c := pick(t)
	gids, err := c.GIDs(1)
	if err != nil || len(gids) == 0 {
		t.Fatal(gids, err)
	}
	if got := New(*w).(driver.NetDeviceFinder).FindNetDevice(gids[0].NetDev); !slices.Equal(got, []string{n.Info.Name}) {
		t.Errorf("%s belongs to %q, want %s", gids[0].NetDev, got, n.Info.Name)
	}
}

func TestQueriesOfARealDevice(t *testing.T) {
	_, n, c := pick(t)
	a, err := c.QueryDevice()
	if err != nil {
		t.Fatal(err)
	}
	if a.NodeGUID != n.Info.NodeGUID || a.Ports != n.Info.Ports || a.MaxQP == 0 || a.MaxCQE == 0 || a.CompVectors == 0 {
		t.Errorf("%+v does not fit %+v", a, n.Info)
	}
	p, err := c.QueryPort(1)
	if err != nil {
		t.Fatal(err)
	}
	if !p.ActiveMTU.Valid() || !p.MaxMTU.Valid() || p.GIDTableLen == 0 || p.SpeedMbps == 0 {
		t.Errorf("port %+v", p)
	}
	if _, err := c.QueryPort(200); !errors.Is(err, syscall.EINVAL) {
		t.Errorf("port 200: %v", err)
	}
}

// TestContextsAreIndependent opens a device twice: the objects of one are not
// those of the other, and a second context of one file is refused.
func TestContextsAreIndependent(t *testing.T) {
	w, n, a := pick(t)
	b, err := OpenContext(w, n, uverbs.UHW{})
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	pd, err := a.Dev.AllocPD(uverbs.UHW{})
	if err != nil {
		t.Fatal(err)
	}
	handles := func(c *Context) int {
		hs, err := c.Dev.Handles(uapi.ObjectPD)
		if err != nil {
			t.Fatal(err)
		}
		return len(hs)
	}
	if x, y := handles(a), handles(b); x != 1 || y != 0 {
		t.Errorf("%d and %d PDs", x, y)
	}
	if err := b.Dev.DeallocPD(pd); !errors.Is(err, syscall.ENOENT) {
		t.Errorf("PD of another context: %v", err)
	}
	if err := a.Dev.DeallocPD(pd); err != nil {
		t.Error(err)
	}
	if err := a.Dev.GetContext(uverbs.UHW{}); !errors.Is(err, syscall.EINVAL) {
		t.Errorf("second GetContext: %v", err)
	}
}

func TestWrongNode(t *testing.T) {
	w, n, _ := pick(t)
	other := n.Node
	other.Dev++
	var changed *uverbs.ChangedError
	if _, err := uverbs.Open(w.Kernel, other); !errors.As(err, &changed) {
		t.Errorf("another device number: %v", err)
	}
	other = n.Node
	other.DriverID = uapi.DriverMLX5
	if _, err := uverbs.Open(w.Kernel, other); !errors.Is(err, syscall.EINVAL) || !strings.Contains(err.Error(), "driver id 1 is not") {
		t.Errorf("another driver id: %v", err)
	}
}

// TestWatchRealDevices renames a device and back.
func TestWatchRealDevices(t *testing.T) {
	_, n, _ := pick(t)
	if !lab.Inside() {
		t.Skip("renames a device, which only the lab's may be")
	}
	rename := func(from, to string) {
		t.Helper()
		if out, err := exec.CommandContext(context.Background(), "rdma", "dev", "set", from, "name", to).CombinedOutput(); err != nil {
			t.Fatalf("rename: %v %s", err, out)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	changed := make(chan struct{}, 1)
	done := make(chan error, 1)
	drv := New(Default())
	go func() { done <- drv.Watch(ctx, changed) }()
	defer func() {
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Errorf("Watch: %v", err)
		}
	}()
	has := func(name string) bool {
		ds, err := drv.Devices()
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range ds {
			if d.Info().Name == name {
				return true
			}
		}
		return false
	}
	told := func(name string) bool {
		for deadline := time.After(60 * time.Second); ; {
			select {
			case <-changed:
				if has(name) {
					return true
				}
			case <-deadline:
				return false
			}
		}
	}
	rename(n.Info.Name, "renamed0")
	noticed := told("renamed0")
	rename("renamed0", n.Info.Name)
	if !noticed || !told(n.Info.Name) {
		t.Error("the change of a name was not noticed")
	}
}
