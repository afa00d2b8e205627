package mlx5model

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// TestSupervisedFiles is a program that looks at the device's files by each system call
// that there is for it.
func TestSupervisedFiles(t *testing.T) {
	if os.Getenv(underOne) == "" {
		l := newSupervised(t, polled)
		logged := l.logged()
		contains(t, l.again(t), "PASS: TestSupervisedFiles", "openat2 of a file about RDMA with restrictions")
		contains(t, strings.Join(logged(), "\n"), "a write of 24 bytes to the device's file")
		return
	}
	number := unix.Mkdev(deviceMajor, deviceMinor)
	isNode := func(how string, mode uint32, rdev uint64, err error) {
		t.Helper()
		if err != nil || mode&unix.S_IFMT != unix.S_IFCHR || rdev != number {
			t.Errorf("%s: mode %#o, device %#x, %v", how, mode, rdev, err)
		}
	}
	var st unix.Stat_t
	err := unix.Stat(node, &st)
	isNode("stat", st.Mode, st.Rdev, err)
	err = unix.Lstat(node, &st)
	isNode("lstat", st.Mode, st.Rdev, err)
	var stx unix.Statx_t
	err = unix.Statx(unix.AT_FDCWD, node, 0, unix.STATX_BASIC_STATS, &stx)
	isNode("statx", uint32(stx.Mode), unix.Mkdev(stx.Rdev_major, stx.Rdev_minor), err)

	folder, err := unix.Open(filepath.Dir(node), unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(folder)
	fd, err := unix.Openat(folder, filepath.Base(node), unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	err = unix.Fstat(fd, &st)
	isNode("fstat", st.Mode, st.Rdev, err)
	err = unix.Fstatat(fd, "", &st, unix.AT_EMPTY_PATH)
	isNode("fstatat of a descriptor", st.Mode, st.Rdev, err)
	err = unix.Statx(fd, "", unix.AT_EMPTY_PATH, unix.STATX_BASIC_STATS, &stx)
	isNode("statx of a descriptor", uint32(stx.Mode), unix.Mkdev(stx.Rdev_major, stx.Rdev_minor), err)
	if _, err := unix.IoctlGetInt(fd, unix.TCGETS); err == nil {
		t.Error("the device has an ioctl that it does not know")
	}

	writes(t, fd)
	opensBy2(t, folder)

	if err := unix.Access(node, unix.R_OK|unix.W_OK); err != nil {
		t.Error(err)
	}
	if err := unix.Faccessat(unix.AT_FDCWD, classes+"/mlx5_0", unix.R_OK, unix.AT_EACCESS); err != nil {
		t.Error(err)
	}
	if to, err := os.Readlink(classes + "/mlx5_0/device/driver"); filepath.Base(to) != "mlx5_core" {
		t.Errorf("the driver is %q, %v", to, err)
	}
	b := make([]byte, 4)
	if n, err := unix.Readlink(classes+"/mlx5_0/device/driver", b); n != len(b) || string(b) != driverFolder[:n] {
		t.Errorf("%d bytes of the link are %q, %v", n, b, err)
	}
	if b, err := os.ReadFile(classes + "/mlx5_0/node_type"); string(b) != "1: CA\n" {
		t.Errorf("the node type is %q, %v", b, err)
	}
	entries, err := os.ReadDir(classes + "_verbs")
	if !slices.ContainsFunc(entries, func(e fs.DirEntry) bool { return e.Name() == "uverbs0" }) {
		t.Errorf("the class has %v, %v", entries, err)
	}
	t.Chdir("/sys/class")
	if _, err := os.ReadFile("infiniband/mlx5_0/fw_ver"); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat("/sys/class/net"); err != nil {
		t.Error(err)
	}

	for path, want := range map[string]error{devices + "/uverbs1": fs.ErrNotExist, classes + "/rxe0": fs.ErrNotExist, devices + "/rdma_cm": fs.ErrNotExist} {
		if _, err := os.Stat(path); !errors.Is(err, want) {
			t.Errorf("stat %s: %v", path, err)
		}
		if _, err := os.Open(path); !errors.Is(err, want) {
			t.Errorf("open %s: %v", path, err)
		}
		if _, err := os.Readlink(path); !errors.Is(err, want) {
			t.Errorf("readlink %s: %v", path, err)
		}
		if err := unix.Access(path, unix.F_OK); !errors.Is(err, want) {
			t.Errorf("access %s: %v", path, err)
		}
	}
	if f, err := os.Create(classes + "/mlx5_0/new"); !errors.Is(err, fs.ErrPermission) {
		t.Errorf("%v is created: %v", f, err)
	}
	if _, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_RDMA); err != syscall.EPROTONOSUPPORT {
		t.Errorf("RDMA netlink: %v", err)
	}
}

// writes sees that the device's file takes no commands by write, and that others are written
// as ever.
func writes(t *testing.T, fd int) {
	if n, err := unix.Write(fd, bytes.Repeat([]byte{1}, 24)); err != unix.EINVAL {
		t.Errorf("%d bytes of a command are written, %v", n, err)
	}
	b := make([]byte, 24)
	if n, err := unix.Pread(fd, b, 0); n != len(b) || err != nil || !bytes.Equal(b, make([]byte, 24)) {
		t.Errorf("the pages of doorbells begin with %x, %d, %v", b, n, err)
	}
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	_, err = w.WriteString("through a pipe")
	if got, failed := io.ReadAll(io.LimitReader(r, 14)); string(got) != "through a pipe" {
		t.Errorf("%q came, %v, %v", got, err, failed)
	}
	if err := w.Close(); err != nil {
		t.Error(err)
	}
}

// opensBy2 opens files by openat2. folder is the device's.
func opensBy2(t *testing.T, folder int) {
	for _, c := range []struct {
		dir  int
		name string
		how  unix.OpenHow
		want error
	}{
		{unix.AT_FDCWD, node, unix.OpenHow{Flags: unix.O_RDWR}, nil},
		{folder, filepath.Base(node), unix.OpenHow{Flags: unix.O_RDWR}, nil},
		{unix.AT_FDCWD, classes + "/mlx5_0/fw_ver", unix.OpenHow{}, nil},
		{unix.AT_FDCWD, "/proc/self/status", unix.OpenHow{Resolve: unix.RESOLVE_NO_XDEV}, unix.EXDEV}, // the kernel's
		{unix.AT_FDCWD, devices + "/uverbs1", unix.OpenHow{}, unix.ENOENT},
		{unix.AT_FDCWD, classes + "/mlx5_0/fw_ver", unix.OpenHow{Flags: unix.O_WRONLY}, unix.EACCES},
		{unix.AT_FDCWD, node, unix.OpenHow{Resolve: unix.RESOLVE_NO_SYMLINKS}, unix.EOPNOTSUPP},
	} {
		c.how.Flags |= unix.O_CLOEXEC
		fd, err := unix.Openat2(c.dir, c.name, &c.how)
		if err != c.want {
			t.Errorf("openat2 of %s with %+v: %v, want %v", c.name, c.how, err, c.want)
		}
		if err != nil {
			continue
		}
		var st unix.Stat_t
		if err := unix.Fstat(fd, &st); err != nil || (st.Rdev == unix.Mkdev(deviceMajor, deviceMinor)) != (filepath.Base(c.name) == filepath.Base(node)) {
			t.Errorf("%s is device %#x, %v", c.name, st.Rdev, err)
		}
		if err := unix.Close(fd); err != nil {
			t.Error(err)
		}
	}
}
