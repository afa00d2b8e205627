package uverbs_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/purerdma/purerdma/ibverbs/driver"
	"github.com/purerdma/purerdma/ibverbs/internal/uapi"
	"github.com/purerdma/purerdma/ibverbs/internal/uverbs"
	"github.com/purerdma/purerdma/ibverbs/internal/uverbs/uverbstest"
	"golang.org/x/sys/unix"
)

const testDev = 231<<8 | 192

var testNode = uverbs.Node{Path: "/dev/infiniband/uverbs0", Dev: testDev, DriverID: uapi.DriverRXE}

// open gives a device of k with a context. Nothing of it may be left at the end.
func open(t testing.TB, k *uverbstest.FakeKernel) *uverbs.Device {
	t.Helper()
	d, err := uverbs.Open(k, testNode)
	if err != nil {
		t.Fatal(err)
	}
	if err := d.GetContext(uverbs.UHW{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
		if files, objects := k.Left(); files != 0 || objects != 0 {
			t.Errorf("left: %d files, %d objects", files, objects)
		}
	})
	return d
}

func fails(errno syscall.Errno) uverbstest.Handler {
	return func(*uverbstest.Call) error { return errno }
}

func TestOpenRefused(t *testing.T) {
	probe := func(k *uverbstest.FakeKernel, h uverbstest.Handler) { k.Methods[uverbstest.InvokeWrite] = h }
	for name, tc := range map[string]struct {
		change func(*uverbstest.FakeKernel)
		is     error
		text   string
	}{
		"no node":           {func(k *uverbstest.FakeKernel) { k.OpenErr = syscall.ENOENT }, fs.ErrNotExist, ""},
		"no right":          {func(k *uverbstest.FakeKernel) { k.OpenErr = syscall.EACCES }, fs.ErrPermission, ""},
		"removed":           {func(k *uverbstest.FakeKernel) { k.OpenErr = syscall.EIO }, driver.ErrDeviceGone, ""},
		"replaced":          {func(k *uverbstest.FakeKernel) { k.Dev++ }, syscall.ENXIO, "0xe7c1, but 0xe7c0 was listed"},
		"no device":         {func(k *uverbstest.FakeKernel) { k.Dev = 0 }, syscall.ENXIO, "not a character device"},
		"no ioctl at all":   {func(k *uverbstest.FakeKernel) { probe(k, fails(syscall.ENOTTY)) }, driver.ErrNotSupported, "verbs by ioctl is not supported by this kernel, which has it since Linux 5.8"},
		"no INVOKE_WRITE":   {func(k *uverbstest.FakeKernel) { probe(k, fails(syscall.EPROTONOSUPPORT)) }, driver.ErrNotSupported, "by this kernel"},
		"probe not refused": {func(k *uverbstest.FakeKernel) { probe(k, func(*uverbstest.Call) error { return nil }) }, driver.ErrNotSupported, "by this kernel"},
		"other driver id":   {func(k *uverbstest.FakeKernel) { probe(k, fails(syscall.EINVAL)) }, syscall.EINVAL, "driver id 14 is not that of /dev/infiniband/uverbs0"},
		"removed since":     {func(k *uverbstest.FakeKernel) { probe(k, fails(syscall.EIO)) }, driver.ErrDeviceGone, ""},
	} {
		t.Run(name, func(t *testing.T) {
			k := uverbstest.NewFakeKernel(testDev)
			tc.change(k)
			d, err := uverbs.Open(k, testNode)
			if d != nil || !errors.Is(err, tc.is) || !strings.Contains(err.Error(), tc.text) {
				t.Errorf("Open = %v, %v", d, err)
			}
			if files, _ := k.Left(); files != 0 {
				t.Errorf("%d descriptors are left", files)
			}
		})
	}
}

func TestGetContextOfAnOldKernel(t *testing.T) {
	k := uverbstest.NewFakeKernel(testDev)
	delete(k.Methods, uverbstest.GetContext)
	d, err := uverbs.Open(k, testNode)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	var missing *driver.NotSupportedError
	if err := d.GetContext(uverbs.UHW{}); !errors.As(err, &missing) || missing.By != driver.LacksKernel {
		t.Errorf("GetContext: %v", err)
	}
}

// TestLinuxKernel runs the real system calls on a device that is not RDMA.
func TestLinuxKernel(t *testing.T) {
	d, err := uverbs.Open(uverbs.Linux{}, uverbs.Node{Path: "/dev/null", Dev: 1<<8 | 3})
	if d != nil || !errors.Is(err, syscall.ENOTTY) || !errors.Is(err, driver.ErrNotSupported) {
		t.Errorf("Open(/dev/null) = %v, %v", d, err)
	}
	if _, err = uverbs.Open(uverbs.Linux{}, uverbs.Node{Path: "/dev/null", Dev: 1<<8 | 4}); !errors.Is(err, syscall.ENXIO) {
		t.Errorf("another device number: %v", err)
	}
	if _, err = uverbs.Open(uverbs.Linux{}, uverbs.Node{Path: t.TempDir() + "/uverbs0"}); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("no node: %v", err)
	}
}

// TestDescriptorsAreNotInherited keeps devices out of programs that are started.
func TestDescriptorsAreNotInherited(t *testing.T) {
	fd, _, err := uverbs.Linux{}.Open("/dev/null")
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	if flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); err != nil || flags&unix.FD_CLOEXEC == 0 {
		t.Errorf("flags %#x, %v", flags, err)
	}
}

// commands is every typed command, with the handler that it reaches.
var commands = []struct {
	name string
	via  uverbstest.Method
	cmd  uint32
	call func(d *uverbs.Device) error
}{
	{"GetContext", uverbstest.GetContext, 0, func(d *uverbs.Device) error { return d.GetContext(uverbs.UHW{}) }},
	{"QueryDevice", uverbstest.InvokeWrite, uapi.CmdQueryDevice | uapi.CmdFlagExtended, func(d *uverbs.Device) error { _, err := d.QueryDevice(); return err }},
	{"QueryPort", uverbstest.QueryPort, 0, func(d *uverbs.Device) error { _, err := d.QueryPort(1); return err }},
	{"GIDs", uverbstest.QueryGIDTable, 0, func(d *uverbs.Device) error { _, err := d.GIDs(1, 16, 1); return err }},
	{"Handles", uverbstest.InfoHandles, 0, func(d *uverbs.Device) error { _, err := d.Handles(uapi.ObjectQP); return err }},
	{"AllocPD", uverbstest.InvokeWrite, uapi.CmdAllocPD, func(d *uverbs.Device) error { _, err := d.AllocPD(uverbs.UHW{}); return err }},
	{"DeallocPD", uverbstest.PDDestroy, 0, func(d *uverbs.Device) error { return d.DeallocPD(1) }},
	{"RegMR", uverbstest.InvokeWrite, uapi.CmdRegMR, func(d *uverbs.Device) error { _, err := d.RegMR(1, 4096, 64, 4096, 1, uverbs.UHW{}); return err }},
	{"RegMR by its method", uverbstest.RegMR, 0, func(d *uverbs.Device) error { _, err := d.RegMR(1, 4096, 64, 4096, 1, uverbs.UHW{}); return err }},
	{"RegDMABufMR", uverbstest.RegDMABufMR, 0, func(d *uverbs.Device) error {
		_, err := d.RegDMABufMR(1, driver.DMABuf{FD: 3, Length: 64}, 1)
		return err
	}},
	{"ReregMR", uverbstest.InvokeWrite, uapi.CmdReregMR, func(d *uverbs.Device) error {
		_, err := d.ReregMR(1, uverbs.Rereg{SetAccess: true, Access: 1})
		return err
	}},
	{"ModerateCQ", uverbstest.InvokeWrite, uapi.CmdModifyCQ | uapi.CmdFlagExtended, func(d *uverbs.Device) error { return d.ModerateCQ(1, 16, 100) }},
	{"DeregMR", uverbstest.MRDestroy, 0, func(d *uverbs.Device) error { return d.DeregMR(1) }},
	{"CreateCompChannel", uverbstest.InvokeWrite, uapi.CmdCreateCompChannel, func(d *uverbs.Device) error { _, err := d.CreateCompChannel(); return err }},
	{"AllocAsyncEvents", uverbstest.AsyncEvents, 0, func(d *uverbs.Device) error { _, err := d.AllocAsyncEvents(); return err }},
	{"CreateCQ", uverbstest.CQCreate, 0, func(d *uverbs.Device) error {
		_, _, err := d.CreateCQ(uverbs.CQConfig{Depth: 16}, uverbs.UHW{})
		return err
	}},
	{"DestroyCQ", uverbstest.CQDestroy, 0, func(d *uverbs.Device) error { return d.DestroyCQ(1) }},
	{"ReqNotifyCQ", uverbstest.InvokeWrite, uapi.CmdReqNotifyCQ, func(d *uverbs.Device) error { return d.ReqNotifyCQ(1, true) }},
	{"CreateQP", uverbstest.QPCreate, 0, func(d *uverbs.Device) error {
		_, err := d.CreateQP(uverbs.QPConfig{Type: driver.RC}, uverbs.UHW{})
		return err
	}},
	{"DestroyQP", uverbstest.QPDestroy, 0, func(d *uverbs.Device) error { return d.DestroyQP(1) }},
	{"ModifyQP", uverbstest.InvokeWrite, uapi.CmdModifyQP, func(d *uverbs.Device) error {
		return d.ModifyQP(1, &driver.QPAttr{State: driver.StateInit}, driver.QPStateMask)
	}},
	{"QueryQP", uverbstest.InvokeWrite, uapi.CmdQueryQP, func(d *uverbs.Device) error { _, err := d.QueryQP(1, driver.QPStateMask); return err }},
	{"ResizeCQ", uverbstest.InvokeWrite, uapi.CmdResizeCQ, func(d *uverbs.Device) error { _, err := d.ResizeCQ(1, 16, uverbs.UHW{}); return err }},
	{"CreateSRQ", uverbstest.SRQCreate, 0, func(d *uverbs.Device) error {
		_, err := d.CreateSRQ(uverbs.SRQConfig{WR: 16, SGE: 1}, uverbs.UHW{})
		return err
	}},
	{"DestroySRQ", uverbstest.SRQDestroy, 0, func(d *uverbs.Device) error { return d.DestroySRQ(1) }},
	{"ResizeSRQ", uverbstest.InvokeWrite, uapi.CmdModifySRQ, func(d *uverbs.Device) error { return d.ResizeSRQ(1, 16, uverbs.UHW{Addressed: make([]byte, 16)}) }},
	{"SetSRQLimit", uverbstest.InvokeWrite, uapi.CmdModifySRQ, func(d *uverbs.Device) error { return d.SetSRQLimit(1, 16, uverbs.UHW{}) }},
	{"QuerySRQ", uverbstest.InvokeWrite, uapi.CmdQuerySRQ, func(d *uverbs.Device) error { _, err := d.QuerySRQ(1); return err }},
	{"CreateAH", uverbstest.InvokeWrite, uapi.CmdCreateAH, func(d *uverbs.Device) error {
		_, err := d.CreateAH(1, &driver.AHAttr{Port: 1}, uverbs.UHW{})
		return err
	}},
	{"DestroyAH", uverbstest.AHDestroy, 0, func(d *uverbs.Device) error { return d.DestroyAH(1) }},
	{"AllocMW", uverbstest.InvokeWrite, uapi.CmdAllocMW, func(d *uverbs.Device) error { _, err := d.AllocMW(1, uverbs.UHW{}); return err }},
	{"DeallocMW", uverbstest.MWDestroy, 0, func(d *uverbs.Device) error { return d.DeallocMW(1) }},
	{"AttachMulticast", uverbstest.InvokeWrite, uapi.CmdAttachMcast, func(d *uverbs.Device) error { return d.AttachMulticast(1, driver.GID{}, 0) }},
	{"DetachMulticast", uverbstest.InvokeWrite, uapi.CmdDetachMcast, func(d *uverbs.Device) error { return d.DetachMulticast(1, driver.GID{}, 0) }},
	{"Doorbell", uverbstest.InvokeWrite, uapi.CmdPostSend, func(d *uverbs.Device) error {
		b, err := d.NewDoorbell(1)
		if err != nil {
			return err
		}
		defer b.Close()
		return b.Ring()
	}},
}

// TestErrnos sends each errno that the kernel is known to answer through every
// command.
func TestErrnos(t *testing.T) {
	destroys := map[string]bool{"DeallocPD": true, "DeregMR": true, "DestroyCQ": true, "DestroyQP": true,
		"DestroySRQ": true, "DestroyAH": true, "DeallocMW": true}
	for _, c := range commands {
		for _, errno := range []syscall.Errno{syscall.EINVAL, syscall.ENOMEM, syscall.EFAULT, syscall.EACCES, syscall.ENOENT, syscall.EBUSY,
			syscall.ETIMEDOUT, syscall.ENOSPC, syscall.EIO, syscall.EOPNOTSUPP, syscall.EPERM, syscall.ENODEV, syscall.ENXIO, syscall.EEXIST,
			syscall.EMSGSIZE, syscall.ERANGE, syscall.EAGAIN, syscall.EBADF, syscall.ENOTTY, syscall.EDQUOT, syscall.ENETUNREACH,
			syscall.EADDRNOTAVAIL, syscall.ENOSYS, syscall.E2BIG, syscall.EMFILE, syscall.EDOM, syscall.Errno(524)} {
			t.Run(fmt.Sprintf("%s/%d", c.name, int(errno)), func(t *testing.T) {
				k := uverbstest.NewFakeKernel(testDev)
				d := open(t, k)
				k.Methods[uverbstest.QueryGIDEntry] = fails(errno)
				if c.via == uverbstest.InvokeWrite {
					k.Commands[c.cmd] = fails(errno)
				} else {
					k.Methods[c.via] = fails(errno)
				}
				err := c.call(d)
				if c.name == "QueryDevice" && errno == syscall.EOPNOTSUPP {
					if !errors.Is(err, syscall.EPROTONOSUPPORT) { // of the plain command, which the fake does not have
						t.Errorf("got %v", err)
					}
					return
				}
				if !errors.Is(err, errno) {
					t.Fatalf("got %v, want %v", err, errno)
				}
				switch {
				case errno == syscall.EIO && err != driver.ErrDeviceGone:
					t.Errorf("got %v, want ErrDeviceGone", err)
				case errno == syscall.EBUSY && destroys[c.name] && err != driver.ErrBusy:
					t.Errorf("got %v, want ErrBusy", err)
				}
			})
		}
	}
}

// TestWhoLacksIt tells a kernel that is too old from a device that cannot.
func TestWhoLacksIt(t *testing.T) {
	for _, c := range commands {
		switch c.name {
		case "QueryPort", "GIDs", "Handles", "RegMR", "RegDMABufMR", "AllocAsyncEvents", "CreateCQ", "CreateQP", "ResizeCQ", "CreateSRQ",
			"ReregMR", "ModerateCQ", "ResizeSRQ", "SetSRQLimit", "QuerySRQ", "CreateAH", "AllocMW", "AttachMulticast", "DetachMulticast":
		default:
			continue
		}
		for errno, by := range map[syscall.Errno]driver.Lacks{syscall.EPROTONOSUPPORT: driver.LacksKernel, syscall.EOPNOTSUPP: driver.LacksDevice} {
			k := uverbstest.NewFakeKernel(testDev)
			d := open(t, k)
			k.Methods[uverbstest.QueryGIDEntry] = fails(errno)
			if c.via == uverbstest.InvokeWrite {
				k.Commands[c.cmd] = fails(errno)
			} else {
				k.Methods[c.via] = fails(errno)
			}
			var missing *driver.NotSupportedError
			if err := c.call(d); !errors.As(err, &missing) || missing.By != by || !errors.Is(err, errno) {
				t.Errorf("%s, %v: %v", c.name, errno, err)
			}
		}
	}
}

func TestCallsAfterClose(t *testing.T) {
	k := uverbstest.NewFakeKernel(testDev)
	d := open(t, k)
	for range 2 {
		if err := d.Close(); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range commands {
		if err := c.call(d); !errors.Is(err, driver.ErrClosed) {
			t.Errorf("%s after Close: %v", c.name, err)
		}
	}
}

// Regions of 4 GiB and more reach the kernel with all their bits, by each of the ways.
func TestLengthsHave64Bits(t *testing.T) {
	const addr, length, iova = 0x7f12_3456_7000, 5<<30 + 1, 0x1234_5678_9000
	k := uverbstest.NewFakeKernel(testDev)
	d := open(t, k)
	var got [3][]byte
	keep := func(i int, at ...uint16) uverbstest.Handler {
		return func(c *uverbstest.Call) error {
			for _, id := range at {
				got[i] = append(got[i], c.In(id)...)
			}
			return syscall.ENOMEM
		}
	}
	k.Methods[uverbstest.RegMR] = keep(0, uapi.AttrRegMRAddr, uapi.AttrRegMRLength, uapi.AttrRegMRIOVA)
	k.Methods[uverbstest.RegDMABufMR] = keep(1, uapi.AttrRegDMABufMROffset, uapi.AttrRegDMABufMRLength, uapi.AttrRegDMABufMRIOVA)
	_, _ = d.RegMR(1, addr, length, iova, 1, uverbs.UHW{})
	_, _ = d.RegDMABufMR(1, driver.DMABuf{FD: 3, Offset: addr, Length: length, IOVA: iova}, 1)
	k.Methods[uverbstest.RegMR] = fails(syscall.EPROTONOSUPPORT)
	k.Commands[uapi.CmdRegMR] = func(c *uverbstest.Call) error {
		got[2] = append([]byte(nil), c.In(uapi.AttrCoreIn)[8:32]...) // start, length, hca_va
		return syscall.ENOMEM
	}
	_, _ = d.RegMR(1, addr, length, iova, 1, uverbs.UHW{})
	for i, b := range got {
		if len(b) != 24 {
			t.Errorf("way %d: %d bytes", i, len(b))
			continue
		}
		for j, want := range []uint64{addr, length, iova} {
			if v := binary.NativeEndian.Uint64(b[8*j:]); v != want {
				t.Errorf("way %d, number %d: %#x, want %#x", i, j, v, want)
			}
		}
	}
}

// TestFramesAreClean uses a frame that was full of a larger answer for a command
// to which the kernel answers nothing.
func TestFramesAreClean(t *testing.T) {
	k := uverbstest.NewFakeKernel(testDev)
	d := open(t, k)
	ff := []byte(strings.Repeat("\xff", 304))
	binary.NativeEndian.PutUint32(ff[180:], 304)
	k.Commands[uapi.CmdQueryDevice|uapi.CmdFlagExtended] = func(c *uverbstest.Call) error {
		c.SetOut(uapi.AttrCoreOut, ff)
		return nil
	}
	if _, err := d.QueryDevice(); err != nil {
		t.Fatal(err)
	}
	k.Methods[uverbstest.QueryPort] = func(*uverbstest.Call) error { return nil }
	if a, err := d.QueryPort(1); err != nil || a != (driver.PortAttr{}) {
		t.Errorf("a port that the kernel said nothing of is %+v, %v", a, err)
	}
}

func TestDriverData(t *testing.T) {
	k := uverbstest.NewFakeKernel(testDev)
	d := open(t, k)
	for _, n := range []int{0, 1, 8, 9, 5000, 65535} { // inline, pointed to, more than a frame holds
		in := []byte(strings.Repeat("x", n))
		k.Commands[uapi.CmdAllocPD] = func(c *uverbstest.Call) error {
			c.SetOut(uapi.AttrCoreOut, []byte{7, 0, 0, 0})
			c.SetOut(uapi.AttrUHWOut, append([]byte("the kernel writes less"), c.In(uapi.AttrUHWIn)[:min(n, 1)]...))
			return nil
		}
		u := uverbs.UHW{In: in, Out: []byte(strings.Repeat("?", 64))}
		h, err := d.AllocPD(u)
		want := "the kernel writes less" + strings.Repeat("x", min(n, 1))
		if got := strings.TrimRight(string(u.Out), "\x00"); err != nil || h != 7 || got != want {
			t.Errorf("%d bytes in: handle %d, %q, %v", n, h, got, err)
		}
	}
	if _, err := d.AllocPD(uverbs.UHW{In: make([]byte, 65536)}); err == nil {
		t.Error("65536 bytes went through a field of 16 bits")
	}
}

// TestAddressed is an answer at an address that the driver names.
func TestAddressed(t *testing.T) {
	k := uverbstest.NewFakeKernel(testDev)
	d := open(t, k)
	k.Commands[uapi.CmdModifySRQ] = func(c *uverbstest.Call) error {
		if !c.SetAddressed(uapi.AttrUHWIn, []byte("at the address")) {
			t.Errorf("input % x is no address within the frame", c.In(uapi.AttrUHWIn))
		}
		return nil
	}
	got := []byte(strings.Repeat("?", 16))
	if err := d.ResizeSRQ(1, 8, uverbs.UHW{Addressed: got}); err != nil || string(got) != "at the address\x00\x00" {
		t.Errorf("got %q, %v", got, err)
	}
}

func TestRegMRMethod(t *testing.T) {
	k := uverbstest.NewFakeKernel(testDev)
	d := open(t, k)
	reg := func() uverbs.MR {
		t.Helper()
		mr, err := d.RegMR(5, 0x10000, 64, 0x20000, driver.LocalWrite, uverbs.UHW{})
		if err != nil {
			t.Fatal(err)
		}
		return mr
	}
	tries := 0
	k.Methods[uverbstest.RegMR] = func(*uverbstest.Call) error { tries++; return syscall.EPROTONOSUPPORT }
	reg()
	reg()
	if tries != 1 {
		t.Errorf("the kernel was asked %d times for a method that it does not have", tries)
	}

	k = uverbstest.NewFakeKernel(testDev)
	d = open(t, k)
	k.Methods[uverbstest.RegMR] = func(c *uverbstest.Call) error {
		c.SetData(uapi.AttrRegMRHandle, 9)
		c.SetOut(uapi.AttrRegMRRespLKey, []byte{1, 2, 3, 4})
		c.SetOut(uapi.AttrRegMRRespRKey, []byte{5, 6, 7, 8})
		return nil
	}
	if mr, want := reg(), (uverbs.MR{Handle: 9, LKey: 0x04030201, RKey: 0x08070605}); mr != want {
		t.Errorf("got %+v, want %+v", mr, want)
	}
}

// TestOptionalAccess drops the flags that a device may ignore where the kernel
// would refuse them.
func TestOptionalAccess(t *testing.T) {
	const all = driver.LocalWrite | driver.RemoteRead | driver.RelaxedOrdering
	for support, want := range map[uint64]driver.Access{0: driver.LocalWrite | driver.RemoteRead, 1: all} {
		k := uverbstest.NewFakeKernel(testDev)
		k.Methods[uverbstest.GetContext] = func(c *uverbstest.Call) error {
			c.SetOut(uapi.AttrGetContextCoreSupport, binary.NativeEndian.AppendUint64(nil, support))
			return nil
		}
		d := open(t, k)
		var got driver.Access
		k.Commands[uapi.CmdRegMR] = func(c *uverbstest.Call) error {
			got = driver.Access(binary.NativeEndian.Uint32(c.In(uapi.AttrCoreIn)[36:]))
			return nil
		}
		if _, err := d.RegMR(1, 4096, 64, 4096, all, uverbs.UHW{}); err != nil || got != want {
			t.Errorf("core support %d: access %#x, want %#x, %v", support, got, want, err)
		}
	}
}

// TestCommandsAtOnce runs commands of many goroutines: each gets its own answer.
func TestCommandsAtOnce(t *testing.T) {
	k := uverbstest.NewFakeKernel(testDev)
	d := open(t, k)
	k.Commands[uapi.CmdAllocPD] = func(c *uverbstest.Call) error {
		in := c.In(uapi.AttrUHWIn)
		runtime.Gosched()
		c.SetOut(uapi.AttrUHWOut, in)
		c.SetOut(uapi.AttrCoreOut, in)
		return nil
	}
	var wg sync.WaitGroup
	for g := range 16 {
		wg.Go(func() {
			for i := range 200 {
				in := binary.NativeEndian.AppendUint64(nil, uint64(g<<16|i))
				out := make([]byte, 8)
				h, err := d.AllocPD(uverbs.UHW{In: in, Out: out})
				if err != nil || !bytes.Equal(in, out) || int(h) != g<<16|i {
					t.Errorf("asked % x, got % x, handle %#x, %v", in, out, h, err)
					return
				}
			}
		})
	}
	wg.Wait()
}
