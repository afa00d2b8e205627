package kernel

import (
	"errors"
	"io/fs"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/fstest"

	"github.com/purerdma/purerdma/ibverbs/internal/uapi"
)

// failingFS refuses files whose names match.
type failingFS struct {
	fstest.MapFS
	refuse func(name string) error
}

func (f failingFS) Open(name string) (fs.File, error) {
	if err := f.refuse(name); err != nil {
		return nil, &fs.PathError{Op: "open", Path: name, Err: err}
	}
	return f.MapFS.Open(name)
}

func (f failingFS) ReadFile(name string) ([]byte, error) {
	if err := f.refuse(name); err != nil {
		return nil, &fs.PathError{Op: "read", Path: name, Err: err}
	}
	return f.MapFS.ReadFile(name)
}

func (f failingFS) ReadDir(name string) ([]fs.DirEntry, error) {
	if err := f.refuse(name); err != nil {
		return nil, &fs.PathError{Op: "open", Path: name, Err: err}
	}
	return f.MapFS.ReadDir(name)
}

func (f failingFS) ReadLink(name string) (string, error) {
	if err := f.refuse(name); err != nil {
		return "", &fs.PathError{Op: "readlink", Path: name, Err: err}
	}
	return f.MapFS.ReadLink(name)
}

// Whatever of one device cannot be read, the other is listed as it is.
func TestUnreadableFilesHideNoOther(t *testing.T) {
	a, b := connectX("mlx5_0", 1), connectX("mlx5_1", 2)
	a.gids = []gidSlot{{gidIPv4, "RoCE v2", "eth0"}}
	b.gids = a.gids
	eachWay(t, []adapter{a, b}, func(t *testing.T, w World) {
		m := w.Sys.(fstest.MapFS)
		whole, err := infos(t, w)
		if err != nil {
			t.Fatal(err)
		}
		tried := 0
		for name := range m {
			if !strings.Contains(name, "mlx5_0") && !strings.Contains(name, "uverbs0") && !strings.Contains(name, a.pci) {
				continue
			}
			for _, errno := range []error{syscall.EACCES, syscall.EINVAL, syscall.EIO, syscall.ENODEV} {
				tried++
				w.Sys = failingFS{m, func(n string) error {
					if n == name || n == strings.Replace(name, "devices/pci0000:00/"+a.pci+"/infiniband", classIB, 1) {
						return errno
					}
					return nil
				}}
				got, err := infos(t, w)
				if !slices.Contains(got, whole[1]) {
					t.Errorf("%s: %v hides the other: %+v", name, errno, got)
				}
				if len(got) == 1 && err == nil {
					t.Errorf("%s: %v: left out without a reason", name, errno)
				}
			}
		}
		if tried < 20 {
			t.Errorf("only %d files", tried)
		}
	})
}

// Slots that are empty, of another network namespace, or of a net device that is gone
// give EINVAL. They are left out or without a net device.
func TestEmptyGIDSlots(t *testing.T) {
	a := connectX("mlx5_0", 1)
	a.gids = []gidSlot{{gidLocal, "IB/RoCE v1", "eth0"}, {}, {gidIPv4, "RoCE v2", "eth0"}, {gidIPv4, "RoCE v2", "eth1"}}
	m, _ := machineOf(a)
	_, w := testWorld()
	w.Sys = failingFS{m, func(name string) error {
		switch {
		case strings.HasSuffix(name, "gids/1"), strings.HasSuffix(name, "types/1"), strings.HasSuffix(name, "ndevs/1"), strings.HasSuffix(name, "ndevs/3"):
			return syscall.EINVAL
		}
		return nil
	}}
	gids, err := w.sysGIDs("mlx5_0", 1)
	if err != nil || len(gids) != 3 || gids[1].Index != 2 || gids[2].NetDev != "" || gids[0].NetDev != "eth0" {
		t.Errorf("%+v, %v", gids, err)
	}
}

// A device that goes away between two readings is left out, without an error.
func TestDeviceVanishesWhileListed(t *testing.T) {
	a, b := connectX("mlx5_0", 1), connectX("mlx5_1", 2)
	m, nl := machineOf(a, b)
	for after := range 12 {
		gone := fstest.MapFS{}
		for name, f := range m {
			if !strings.Contains(name, "mlx5_0") && !strings.Contains(name, "uverbs0") && !strings.Contains(name, a.pci) {
				gone[name] = f
			}
		}
		reads := 0
		now := func() fstest.MapFS {
			if reads++; reads > after {
				return gone
			}
			return m
		}
		_, w := testWorld()
		w.Sys = vanishing{now}
		w.Netlink = func(uint16, bool, []byte) ([][]byte, error) { return nil, syscall.EPROTONOSUPPORT }
		if names, err := namesOf(t, w); err != nil || !slices.Contains(names, "mlx5_1") {
			t.Errorf("sysfs, gone after %d readings: %v, %v", after, names, err)
		}

		reads = 0
		w.Netlink = func(cmd uint16, dump bool, ask []byte) ([][]byte, error) {
			_ = now()
			if as, _ := parseAttrs(ask); !dump && reads > after {
				if i, _ := as.num(uapi.NLDevAttrDevIndex); i == 0 {
					return nil, syscall.EINVAL
				}
			}
			return answer(nl)(cmd, dump, ask)
		}
		if names, err := namesOf(t, w); err != nil || !slices.Contains(names, "mlx5_1") {
			t.Errorf("netlink, gone after %d readings: %v, %v", after, names, err)
		}
	}
}

// vanishing is a tree that changes while it is read.
type vanishing struct{ now func() fstest.MapFS }

func (v vanishing) Open(name string) (fs.File, error)          { return v.now().Open(name) }
func (v vanishing) ReadFile(name string) ([]byte, error)       { return v.now().ReadFile(name) }
func (v vanishing) ReadDir(name string) ([]fs.DirEntry, error) { return v.now().ReadDir(name) }
func (v vanishing) ReadLink(name string) (string, error)       { return v.now().ReadLink(name) }
func (v vanishing) Lstat(name string) (fs.FileInfo, error)     { return v.now().Lstat(name) }

// EINVAL about a device that is there is a reason like any.
func TestRefusedIsNotVanished(t *testing.T) {
	m, nl := machineOf(connectX("mlx5_0", 1))
	_, w := testWorld()
	w.Sys = m
	w.Netlink = func(cmd uint16, dump bool, ask []byte) ([][]byte, error) {
		switch {
		case cmd == uapi.NLDevCmdGetChardev:
			return nil, syscall.EINVAL
		case cmd == uapi.NLDevCmdGet && !dump:
			return [][]byte{{}}, nil
		}
		return answer(nl)(cmd, dump, ask)
	}
	if names, err := namesOf(t, w); len(names) != 0 || !errors.Is(err, syscall.EINVAL) {
		t.Errorf("%v, %v", names, err)
	}
}

// One message that makes no sense costs its device alone.
func TestOddNetlinkMessage(t *testing.T) {
	_, nl := machineOf(connectX("mlx5_0", 1), connectX("mlx5_1", 2))
	for name, odd := range map[string][]byte{"empty": {}, "cut": {200, 0, 1, 0, 1}, "rubbish": []byte("\x04\x00\x02\x00\x04\x00\x01\x00"), "zero length": {0, 0, 1, 0}} {
		_, w := testWorld()
		m, _ := machineOf(connectX("mlx5_0", 1), connectX("mlx5_1", 2))
		w.Sys = m
		w.Netlink = func(cmd uint16, dump bool, ask []byte) ([][]byte, error) {
			msgs, err := answer(nl)(cmd, dump, ask)
			if dump {
				msgs = slices.Insert(msgs, 1, odd)
			}
			return msgs, err
		}
		if names, err := namesOf(t, w); !slices.Equal(names, []string{"mlx5_0", "mlx5_1"}) || err == nil {
			t.Errorf("%s: %v, %v", name, names, err)
		}
		if _, err := namesOf(t, w); err == nil {
			t.Errorf("%s: the second time %v", name, err)
		}
	}
}

// A list that changed each time it was asked for is used, and flagged.
func TestInterruptedList(t *testing.T) {
	m, nl := machineOf(connectX("mlx5_0", 1))
	_, w := testWorld()
	w.Sys = m
	w.Netlink = func(cmd uint16, dump bool, ask []byte) ([][]byte, error) {
		msgs, err := answer(nl)(cmd, dump, ask)
		if dump {
			err = ErrInterrupted
		}
		return msgs, err
	}
	if names, err := namesOf(t, w); !slices.Equal(names, []string{"mlx5_0"}) || !errors.Is(err, ErrInterrupted) {
		t.Errorf("%v, %v", names, err)
	}
}
