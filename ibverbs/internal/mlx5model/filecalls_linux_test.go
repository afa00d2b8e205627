package mlx5model

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// TestSupervisedFiles is a program that looks at the device's files by each system call
// that there is for it.
func TestSupervisedFiles(t *testing.T) {
	if os.Getenv(underOne) == "" {
		l := newSupervised(t, polled)
		contains(t, l.again(t), "PASS: TestSupervisedFiles")
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
