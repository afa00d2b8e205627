package kernel

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"reflect"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/fstest"
	"testing/synctest"
	"time"

	"github.com/purerdma/purerdma/ibverbs/driver"
	"github.com/purerdma/purerdma/ibverbs/internal/uapi"
	"github.com/purerdma/purerdma/ibverbs/internal/uverbs"
	"github.com/purerdma/purerdma/ibverbs/internal/uverbs/uverbstest"
	"golang.org/x/sys/unix"
)

// plain is a provider without objects.
type plain struct {
	id  uint32
	err error
}

type plainContext struct{ *Context }

func (plainContext) Probe(driver.Feature) error                  { return nil }
func (plainContext) AllocPD() (driver.PD, error)                 { return nil, syscall.ENOSYS }
func (plainContext) CreateCQ(driver.CQConfig) (driver.CQ, error) { return nil, syscall.ENOSYS }
func (p plain) DriverID() uint32                                 { return p.id }
func (p plain) Open(w *World, n Node) (driver.Context, error) {
	if p.err != nil {
		return nil, p.err
	}
	c, err := OpenContext(w, n, uverbs.UHW{})
	if err != nil {
		return nil, err
	}
	return plainContext{c}, nil
}

var (
	infoMLX5 = driver.DeviceInfo{Name: "mlx5_0", Driver: "mlx5", Firmware: "16.35.4030", Board: "MT_0000000008", PCI: "0000:3b:00.0",
		NodeGUID: 0xb8599f0300aabb10, SysGUID: 0xb8599f0300aabb11, Ports: 2, NUMANode: 1, Index: 1}
	infoRXE = driver.DeviceInfo{Name: "rxe0", Driver: "rxe", NodeGUID: 0x001122fffe334455, SysGUID: 0x001122fffe334456,
		Ports: 1, NUMANode: -1, Software: true}
)

func infos(t *testing.T, w World) ([]driver.DeviceInfo, error) {
	t.Helper()
	devices, err := New(w).Devices()
	var is []driver.DeviceInfo
	for _, d := range devices {
		is = append(is, d.Info())
	}
	return is, err
}

func TestDevices(t *testing.T) {
	_, w := testWorld()
	got, err := infos(t, w)
	if want := []driver.DeviceInfo{infoMLX5, infoRXE}; err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("by netlink\ngot  %+v, %v\nwant %+v", got, err, want)
	}
	w.Netlink = func(uint16, bool, []byte) ([][]byte, error) { return nil, syscall.EPROTONOSUPPORT }
	hard, soft := infoMLX5, infoRXE
	soft.SysGUID = soft.NodeGUID
	hard.Index, soft.Index = -1, -1 // sysfs does not tell
	got, err = infos(t, w)
	if want := []driver.DeviceInfo{hard, soft}; err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("by sysfs\ngot  %+v, %v\nwant %+v", got, err, want)
	}
	w.Sys = fstest.MapFS{}
	if got, err = infos(t, w); len(got) != 0 || err != nil {
		t.Errorf("a machine without RDMA: %+v, %v", got, err)
	}
}

func TestFindNetDevice(t *testing.T) {
	_, w := testWorld()
	f := New(w).(driver.NetDeviceFinder)
	for name, want := range map[string][]string{"eth0": {"rxe0"}, "eth7": {"rxe0"}, "eth9": nil, "": nil, "../infiniband": nil} {
		if got := f.FindNetDevice(name); !slices.Equal(got, want) {
			t.Errorf("%s belongs to %q, want %q", name, got, want)
		}
	}
}

// TestBrokenEntries leaves out what cannot be read and says why.
func TestBrokenEntries(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(*World)
		text   string
		hint   string
	}{
		"no ib_uverbs":     {mlxNL(func(d *nlDevice) { d.err = syscall.EOPNOTSUPP }), "mlx5_0", "modprobe ib_uverbs"},
		"chardev refused":  {mlxNL(func(d *nlDevice) { d.err = syscall.EPERM }), "mlx5_0: character device", ""},
		"node with a path": {mlxNL(func(d *nlDevice) { d.node = "../mem" }), "mlx5_0: RDMA netlink tells no node", ""},
		"driver id":        {mlxNL(func(d *nlDevice) { d.id = 1 << 32 }), "driver id", ""},
		"no name":          {mlxNL(func(d *nlDevice) { d.name = "" }), "without index or name", ""},
		"sysfs: unknown driver": {sys(func(m fstest.MapFS) {
			m["devices/pci0000:3a/0000:3b:00.0/driver"] = link("../../../bus/pci/drivers/other")
			m["bus/pci/drivers/other/module"] = file("")
		}), "the driver id of other is not known", ""},
		"sysfs: no driver": {sys(func(m fstest.MapFS) { delete(m, "devices/pci0000:3a/0000:3b:00.0/driver") }), "mlx5_0: RDMA netlink does not answer", ""},
		"sysfs: no name":   {sys(func(m fstest.MapFS) { delete(m, "class/infiniband_verbs/uverbs0/ibdev") }), "uverbs0", ""},
		"sysfs: bad name":  {sys(func(m fstest.MapFS) { m["class/infiniband_verbs/uverbs0/ibdev"] = file("../..") }), "uverbs0: device name", ""},
	} {
		t.Run(name, func(t *testing.T) {
			_, w := testWorld()
			tc.change(&w)
			got, err := infos(t, w)
			if len(got) != 1 || got[0].Name != "rxe0" {
				t.Errorf("listed %+v", got)
			}
			if err == nil || !strings.Contains(err.Error(), tc.text) || !strings.Contains(err.Error(), tc.hint) {
				t.Errorf("error %v", err)
			}
		})
	}
	t.Run("went away meanwhile", func(t *testing.T) {
		_, w := testWorld()
		mlxNL(func(d *nlDevice) { d.err = syscall.ENODEV })(&w)
		if got, err := infos(t, w); len(got) != 1 || err != nil {
			t.Errorf("%+v, %v", got, err)
		}
	})
	t.Run("sysfs without ib_uverbs", func(t *testing.T) {
		_, w := testWorld()
		sys(func(m fstest.MapFS) {
			for name := range m {
				if strings.HasPrefix(name, classVerbs) {
					delete(m, name)
				}
			}
		})(&w)
		if got, err := infos(t, w); len(got) != 0 || !errors.Is(err, driver.ErrNoDevice) || !strings.Contains(err.Error(), "mlx5_0") {
			t.Errorf("%+v, %v", got, err)
		}
	})
}

// mlxNL changes the ConnectX in netlink.
func mlxNL(change func(*nlDevice)) func(*World) {
	return func(w *World) {
		ds := testNetlink()
		change(&ds[1])
		w.Netlink = answer(ds)
	}
}

// sys switches netlink off and changes sysfs.
func sys(change func(fstest.MapFS)) func(*World) {
	return func(w *World) {
		w.Netlink = func(uint16, bool, []byte) ([][]byte, error) { return nil, syscall.EPROTONOSUPPORT }
		m := testSys()
		change(m)
		w.Sys = m
	}
}

// device is the one of this name.
func deviceOf(t *testing.T, w World, name string, ps ...Provider) driver.Device {
	t.Helper()
	ds, err := New(w, ps...).Devices()
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range ds {
		if d.Info().Name == name {
			return d
		}
	}
	t.Fatalf("no %s", name)
	return nil
}

func TestOpen(t *testing.T) {
	k, w := testWorld()
	c, err := deviceOf(t, w, "rxe0", plain{id: uapi.DriverMLX5}, plain{id: uapi.DriverRXE}).Open()
	if err != nil {
		t.Fatal(err)
	}
	a, err := c.QueryDevice()
	if err != nil || a.CompVectors != 2 {
		t.Errorf("QueryDevice: %+v, %v", a, err)
	}
	ch, err := c.CreateCompChannel()
	if err != nil {
		t.Fatal(err)
	}
	if err := ch.Close(); err != nil {
		t.Error(err)
	}
	rec := make([]byte, 16)
	rec[0], rec[8] = 1, byte(driver.EventPortErr)
	if err := k.Post(rec); err != nil {
		t.Fatal(err)
	}
	if e, err := c.NextEvent(t.Context()); err != nil || e != (driver.Event{Type: driver.EventPortErr, Port: 1}) {
		t.Errorf("NextEvent: %+v, %v", e, err)
	}
	if err := c.Close(); err != nil {
		t.Error(err)
	}
	if files, objects := k.Left(); files+objects != 0 {
		t.Errorf("left: %d files, %d objects", files, objects)
	}
}

// TestOpenErrors: each names the device, keeps the errno and says what to do.
func TestOpenErrors(t *testing.T) {
	rxe := plain{id: uapi.DriverRXE}
	for name, tc := range map[string]struct {
		device   string
		provider Provider
		change   func(*uverbstest.FakeKernel, *World)
		is       error
		hint     string
	}{
		"no provider": {device: "mlx5_0", is: driver.ErrNotSupported, hint: "a device of the kernel driver mlx5 (driver id 1)"},
		"container": {change: func(k *uverbstest.FakeKernel, w *World) { k.OpenErr, w.Dev = syscall.ENOENT, fstest.MapFS{} },
			is: fs.ErrNotExist, hint: "--device=/dev/infiniband,"},
		"node missing":  {change: func(k *uverbstest.FakeKernel, _ *World) { k.OpenErr = syscall.ENOENT }, is: fs.ErrNotExist, hint: "--device=/dev/infiniband/uverbs1"},
		"no right":      {change: func(k *uverbstest.FakeKernel, _ *World) { k.OpenErr = syscall.EACCES }, is: fs.ErrPermission, hint: "read and write access to /dev/infiniband/uverbs1"},
		"device cgroup": {change: func(k *uverbstest.FakeKernel, _ *World) { k.OpenErr = syscall.EPERM }, is: syscall.EPERM, hint: "device cgroup"},
		"removed":       {change: func(k *uverbstest.FakeKernel, _ *World) { k.OpenErr = syscall.ENXIO }, is: syscall.ENXIO, hint: "list the devices again"},
		"busy":          {change: func(k *uverbstest.FakeKernel, _ *World) { k.OpenErr = syscall.EBUSY }, is: syscall.EBUSY, hint: "in exclusive use"},
		"descriptors":   {change: func(k *uverbstest.FakeKernel, _ *World) { k.OpenErr = syscall.EMFILE }, is: syscall.EMFILE, hint: "ulimit -n"},
		"replaced":      {change: func(k *uverbstest.FakeKernel, _ *World) { k.Dev++ }, is: syscall.ENXIO, hint: "list the devices again"},
		"old kernel": {change: func(k *uverbstest.FakeKernel, _ *World) {
			k.Methods[uverbstest.InvokeWrite] = func(*uverbstest.Call) error { return syscall.ENOTTY }
		}, is: driver.ErrNotSupported, hint: "Linux 5.8"},
		"no context": {change: func(k *uverbstest.FakeKernel, _ *World) {
			k.Methods[uverbstest.GetContext] = func(*uverbstest.Call) error { return syscall.ENOMEM }
		}, is: syscall.ENOMEM},
		"no events": {change: func(k *uverbstest.FakeKernel, _ *World) {
			k.Methods[uverbstest.AsyncEvents] = func(*uverbstest.Call) error { return syscall.ENFILE }
		}, is: syscall.ENFILE},
		"provider refuses": {provider: plain{id: uapi.DriverRXE, err: syscall.ENOTSUP}, is: syscall.ENOTSUP},
	} {
		t.Run(name, func(t *testing.T) {
			k, w := testWorld()
			if tc.change != nil {
				tc.change(k, &w)
			}
			if tc.device == "" {
				tc.device = "rxe0"
			}
			if tc.provider == nil {
				tc.provider = rxe
			}
			c, err := deviceOf(t, w, tc.device, tc.provider).Open()
			var e *driver.Error
			if c != nil || !errors.As(err, &e) || e.Device != tc.device || e.Op != "open" || !errors.Is(err, tc.is) || !strings.Contains(err.Error(), tc.hint) {
				t.Errorf("Open = %v, %v", c, err)
			}
			if files, objects := k.Left(); files+objects != 0 {
				t.Errorf("left: %d files, %d objects", files, objects)
			}
		})
	}
}

func TestGIDNames(t *testing.T) {
	k, w := testWorld()
	port := make([]byte, 48)
	binary.NativeEndian.PutUint32(port[16:], 4)
	k.Methods[uverbstest.QueryPort] = func(c *uverbstest.Call) error { c.SetOut(uapi.AttrQueryPortResp, port); return nil }
	entries := func(ifindex ...uint32) uverbstest.Handler {
		return func(c *uverbstest.Call) error {
			var b []byte
			for slot, i := range ifindex {
				e := make([]byte, 32)
				e[0] = 0xfe
				for j, v := range []uint32{uint32(slot), 1, 2, i} {
					binary.NativeEndian.PutUint32(e[16+4*j:], v)
				}
				b = append(b, e...)
			}
			c.SetOut(uapi.AttrQueryGIDTableRespEntries, b)
			c.SetOut(uapi.AttrQueryGIDTableRespNumEntries, binary.NativeEndian.AppendUint64(nil, uint64(len(ifindex))))
			return nil
		}
	}
	c, err := deviceOf(t, w, "rxe0", plain{id: uapi.DriverRXE}).Open()
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	names := func() (s []string) {
		t.Helper()
		gids, err := c.GIDs(1)
		if err != nil {
			t.Fatal(err)
		}
		for _, g := range gids {
			s = append(s, g.NetDev)
		}
		return s
	}
	// eth0 as sysfs says; none; no word of sysfs; another namespace's device 3.
	k.Methods[uverbstest.QueryGIDTable] = entries(2, 0, 3, 3)
	if got, want := names(), []string{"eth0", "", "eth1", ""}; !reflect.DeepEqual(got, want) {
		t.Errorf("net devices %q, want %q", got, want)
	}

	delete(k.Methods, uverbstest.QueryGIDTable)
	gids, err := c.GIDs(1)
	want := []driver.GIDEntry{
		{GID: driver.GID{0xfe, 0x80, 9: 0x11, 10: 0x22, 11: 0xff, 12: 0xfe, 13: 0x33, 14: 0x44, 15: 0x55}, Index: 0, Type: driver.GIDTypeRoCEv1, NetDev: "eth0"},
		{GID: driver.GID{10: 0xff, 11: 0xff, 12: 10, 13: 9, 15: 1}, Index: 1, Type: driver.GIDTypeRoCEv2, NetDev: "eth0"},
		{GID: driver.GID{0xfd, 15: 1}, Index: 3, Type: driver.GIDTypeRoCEv2, NetDev: "eth7"},
	}
	if err != nil || !reflect.DeepEqual(gids, want) {
		t.Errorf("GIDs by sysfs\ngot  %+v, %v\nwant %+v", gids, err, want)
	}
}

// einval is sysfs whose unused GID slots cannot be read.
type einval struct{ fstest.MapFS }

func (e einval) ReadFile(name string) ([]byte, error) {
	if strings.HasSuffix(name, "gids/2") {
		return nil, &fs.PathError{Op: "read", Path: name, Err: syscall.EINVAL}
	}
	return e.MapFS.ReadFile(name)
}

func TestGIDSlotsThatCannotBeRead(t *testing.T) {
	_, w := testWorld()
	w.Sys = einval{testSys()}
	if gids, err := w.sysGIDs("rxe0", 1); len(gids) != 3 || err != nil {
		t.Errorf("%+v, %v", gids, err)
	}
	if _, err := w.sysGIDs("rxe0", 9); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a port that is not there: %v", err)
	}
	m := testSys()
	w.Sys = failingFS{m, func(name string) error {
		if strings.HasSuffix(name, "gids/0") {
			return syscall.EIO
		}
		return nil
	}}
	for name := range m {
		if strings.HasSuffix(name, "gids/1") {
			m[name] = file("no GID")
		}
	}
	gids, err := w.sysGIDs("rxe0", 1)
	if len(gids) == 0 || gids[0].Index < 2 || err != nil {
		t.Errorf("slots that are broken hide others: %+v, %v", gids, err)
	}
	for name := range m {
		if strings.Contains(name, "/gids/") {
			m[name] = file("no GID")
		}
	}
	if gids, err := w.sysGIDs("rxe0", 1); len(gids) != 0 || !errors.Is(err, syscall.EIO) {
		t.Errorf("no slot can be read: %+v, %v", gids, err)
	}
}

func TestParseGID(t *testing.T) {
	for _, s := range []string{"", "::", "fe80:0:0:0:0:0:0:1", "fe80:0000:0000:0000:0000:0000:0000", "xe80:0000:0000:0000:0000:0000:0000:0001"} {
		if g, err := parseGID(s); err == nil {
			t.Errorf("%q is %v", s, g)
		}
	}
}

func TestMakedev(t *testing.T) {
	for _, d := range [][2]uint32{{231, 192}, {0xfff, 0xff}, {0x12345, 0x6789a}} {
		if got, want := makedev(uint64(d[0]), uint64(d[1])), unix.Mkdev(d[0], d[1]); got != want {
			t.Errorf("makedev(%#x, %#x) = %#x, want %#x", d[0], d[1], got, want)
		}
	}
}

func FuzzParseAttrs(f *testing.F) {
	f.Add([]byte{})
	f.Add(appendString(append32(nil, 1, 7), 2, "rxe0"))
	f.Add([]byte{3, 0, 1, 0})
	f.Fuzz(func(t *testing.T, b []byte) {
		as, err := parseAttrs(b)
		if err != nil {
			return
		}
		for id, v := range as {
			if !bytes.HasPrefix(v, []byte(as.str(id))) {
				t.Errorf("attribute %d", id)
			}
			as.num(id)
		}
	})
}

func uevent(subsystem string) []byte {
	return fmt.Appendf(nil, "add@/devices/x\x00ACTION=add\x00SUBSYSTEM=%s\x00SEQNUM=1", subsystem)
}

// changingFS is a tree that is replaced as a whole.
type changingFS struct{ atomic.Pointer[fstest.MapFS] }

func (f *changingFS) Open(name string) (fs.File, error) { return f.Load().Open(name) }

func TestWatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, w := testWorld()
		var sysfs changingFS
		sysfs.Store(new(testSys()))
		w.Sys = &sysfs
		var got func([]byte)
		w.Uevents = func(ctx context.Context, g func([]byte)) error {
			got = g
			<-ctx.Done()
			return ctx.Err()
		}
		ctx, cancel := context.WithCancel(t.Context())
		changed := make(chan struct{}, 1)
		done := make(chan error, 1)
		go func() { done <- New(w).Watch(ctx, changed) }()
		synctest.Wait()
		expect := func(what string, want bool) {
			t.Helper()
			synctest.Wait()
			select {
			case <-changed:
				if !want {
					t.Errorf("%s: told of a change", what)
				}
			default:
				if want {
					t.Errorf("%s: not told", what)
				}
			}
		}
		expect("nothing", false)
		got(uevent("net"))
		expect("event of a net device", false)
		for _, s := range []string{"infiniband", "infiniband_verbs"} {
			got(uevent(s))
			got(uevent(s)) // dropped: one token is enough
			expect("event of "+s, true)
		}
		got(nil)
		expect("lost events", true)
		time.Sleep(10 * rescan)
		expect("rescan without a change", false)
		m := testSys()
		delete(m, "class/infiniband_verbs/uverbs1/ibdev")
		sysfs.Store(&m)
		time.Sleep(rescan + time.Millisecond)
		expect("device gone", true)
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Errorf("Watch: %v", err)
		}
	})
}

// TestDefault runs on this machine, whatever it has.
func TestDefault(t *testing.T) {
	devices, err := New(Default()).Devices()
	if err != nil {
		t.Logf("with error %v", err)
	}
	for _, d := range devices {
		t.Logf("%+v", d.Info())
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := New(Default()).Watch(ctx, make(chan struct{}, 1)); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Watch: %v", err)
	}
}
