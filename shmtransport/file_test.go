//go:build linux

package shmtransport

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/purerdma/purerdma/transport/driver"
)

// joinFile is the two ends of a connection by a file in dir, both in this process.
func joinFile(t *testing.T, dir string, opts ...Option) (a, b *Conn) {
	t.Helper()
	f, err := MakeFile(dir, opts...)
	if err != nil {
		t.Fatal(err)
	}
	b, err = AttachFile(dir, f.Name())
	if err != nil {
		t.Fatal(err)
	}
	a, err = f.Attached(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(a.Close(), b.Close()); err != nil {
			t.Error(err)
		}
	})
	return a, b
}

// tmpfs is a directory in which files of shared memory can be made.
func tmpfs(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp(DefaultDir, "purerdma-test-")
	if err != nil {
		t.Skipf("no %s here: %v", DefaultDir, err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

func names(t *testing.T, dir string) (found []string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		found = append(found, e.Name())
	}
	return found
}

func TestFile(t *testing.T) {
	dir := tmpfs(t)
	a, b := joinFile(t, dir)
	if left := names(t, dir); len(left) != 0 {
		t.Errorf("after both have mapped it: %v", left)
	}
	buf := make([]byte, 1<<20)
	for i, n := range sizes[:len(sizes)-2] {
		if err := a.Send(t.Context(), patterned(n, uint64(i))); err != nil {
			t.Fatal(err)
		}
		if got, err := b.Recv(t.Context(), buf); err != nil || !bytes.Equal(buf[:got], patterned(n, uint64(i))) {
			t.Fatalf("%d bytes: %d, %v", n, got, err)
		}
	}
	ended := make(chan error)
	go func() {
		_, err := b.Recv(t.Context(), buf)
		ended <- err
	}()
	asleep(t, b.r.wait.asleep)
	if err := a.Close(); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; err != io.EOF {
		t.Errorf("%v, want EOF", err)
	}
}

func TestFileNobodyAttaches(t *testing.T) {
	dir := tmpfs(t)
	for _, end := range []func(f *File) error{
		func(f *File) error { return errors.Join(f.Close(), f.Close()) },
		func(f *File) error {
			ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
			defer cancel()
			_, err := f.Attached(ctx)
			if !errors.Is(err, context.DeadlineExceeded) {
				return fmt.Errorf("Attached: %w", err)
			}
			return f.Close()
		},
	} {
		f, err := MakeFile(dir)
		if err != nil {
			t.Fatal(err)
		}
		if err := end(f); err != nil {
			t.Error(err)
		}
		if left := names(t, dir); len(left) != 0 {
			t.Errorf("left: %v", left)
		}
	}
}

// What is no file of ours is neither attached nor changed.
func TestAttachRefuses(t *testing.T) {
	dir := tmpfs(t)
	secret := filepath.Join(dir, "secret")
	const text = "do not touch"
	write := func(path, s string) error { return os.WriteFile(path, []byte(s), 0o600) }
	if err := write(secret, text); err != nil {
		t.Fatal(err)
	}
	g := geometry{minCells, minData, 0}
	var header [headerText]byte
	g.encode(&header)
	whole := string(header[:]) + strings.Repeat("\x00", int(g.size())-headerText)
	for name, c := range map[string]struct {
		plant func(path string) error
		want  string
	}{
		"nothing":         {func(string) error { return nil }, "no such file"},
		"symlink":         {func(p string) error { return os.Symlink(secret, p) }, "too many levels"},
		"hard link":       {func(p string) error { return os.Link(secret, p) }, "2 names"},
		"pipe":            {func(p string) error { return unix.Mkfifo(p, 0o600) }, "regular file"},
		"directory":       {func(p string) error { return os.Mkdir(p, 0o700) }, "directory"},
		"empty":           {func(p string) error { return write(p, "") }, "0 bytes"},
		"another's words": {func(p string) error { return write(p, strings.Repeat("x", 8192)) }, "does not begin"},
		"too short":       {func(p string) error { return write(p, whole[:len(whole)-4096]) }, "its header speaks of"},
		"without a maker": {func(p string) error { return write(p, whole) }, "maker is gone"},
		"for everybody":   {func(p string) error { return errors.Join(write(p, whole), os.Chmod(p, 0o644)) }, "lets others in"},
		"another user's": {func(p string) error {
			if os.Getuid() != 0 {
				t.Log("not root: another user's file is not tried")
				return write(p, "")
			}
			return errors.Join(write(p, whole), os.Chown(p, 65534, 0))
		}, map[bool]string{true: "user 65534", false: "0 bytes"}[os.Getuid() == 0]},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(dir, "nccl-plante")
			if err := c.plant(path); err != nil {
				t.Fatal(err)
			}
			conn, err := AttachFile(dir, "nccl-plante")
			if err == nil {
				_ = conn.Close()
			}
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v, want %q", err, c.want)
			}
			if got, err := os.ReadFile(secret); err != nil || string(got) != text {
				t.Errorf("the other file has %q, %v", got, err)
			}
			if err := os.RemoveAll(path); err != nil {
				t.Fatal(err)
			}
		})
	}
	for _, name := range []string{"", "nccl-", "nccl-../..", "nccl-abc/de", "../secret", "nccl-1234567", "secret"} {
		if _, err := AttachFile(dir, name); err == nil || !strings.Contains(err.Error(), "no name of a file") {
			t.Errorf("%q: %v", name, err)
		}
	}
}

// What lies where a file would go, whoever has planted it, is neither followed nor opened for writing nor removed: the file gets another
// name, and if all are taken there is an error and nothing is left.
func TestPlantedNamesAreLeftAlone(t *testing.T) {
	dir := tmpfs(t)
	const text = "do not touch"
	secret := filepath.Join(dir, "secret")
	owner := -1
	if os.Getuid() == 0 {
		owner = 65534
	}
	planted := filepath.Join(dir, "nccl-other0")
	if err := errors.Join(os.WriteFile(secret, []byte(text), 0o600), os.WriteFile(planted, []byte(text), 0o666), os.Chown(planted, owner, -1),
		os.Symlink(secret, filepath.Join(dir, "nccl-link00")), os.Symlink("nowhere", filepath.Join(dir, "nccl-void00")),
		os.Mkdir(filepath.Join(dir, "nccl-dir000"), 0o700)); err != nil {
		t.Fatal(err)
	}
	taken := []string{"other0", "link00", "void00", "dir000"}
	for _, last := range []string{"free00", "other0"} {
		i := -1
		free := func(o *options) {
			o.names = func() string {
				i++
				return append(taken, last)[i%(len(taken)+1)]
			}
		}
		f, err := MakeFile(dir, free)
		switch {
		case last == "free00" && (err != nil || f.Name() != "nccl-free00"):
			t.Errorf("%v, %v", f, err)
		case last != "free00" && !errors.Is(err, unix.EEXIST):
			t.Errorf("all names taken: %v", err)
		}
		if err == nil {
			if err := f.Close(); err != nil {
				t.Error(err)
			}
		}
	}
	if left := names(t, dir); len(left) != len(taken)+1 {
		t.Errorf("left: %v", left)
	}
	for _, path := range []string{secret, planted} {
		if got, err := os.ReadFile(path); err != nil || string(got) != text {
			t.Errorf("%s has %q, %v", path, got, err)
		}
	}
}

// Three processes: the third gets nothing.
func TestFileIsAttachedOnce(t *testing.T) {
	dir := tmpfs(t)
	f, err := MakeFile(dir)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, f.Name())
	third, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	b, err := AttachFile(dir, f.Name())
	if err != nil {
		t.Fatal(err)
	}
	if c, err := attachChecked(third, path, options{}); !errors.Is(err, unix.EAGAIN) {
		t.Errorf("%v, %v", c, err)
	}
	_ = third.Close()
	a, err := f.Attached(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(a.Close(), b.Close()); err != nil {
		t.Error(err)
	}
}

func init() {
	children["make"] = func() error {
		if _, err := MakeFile(os.Getenv("PURERDMA_SHM_ADDR")); err != nil {
			return err
		}
		_ = os.Stdout.Close()
		select {}
	}
	children["attach"] = func() error {
		dir, name := filepath.Split(os.Getenv("PURERDMA_SHM_ADDR"))
		c, err := AttachFile(dir, name)
		if err != nil {
			return err
		}
		for m := make([]byte, 100_000); ; {
			if err := c.Send(context.Background(), m); err != nil {
				return err
			}
		}
	}
}

// What a killed process leaves, the next one that makes a file removes; what others have there stays.
func TestKilledMakersFileIsRemoved(t *testing.T) {
	dir := tmpfs(t)
	for _, other := range []string{"nccl-foreig", "nccl-empty0", "note"} {
		if err := os.WriteFile(filepath.Join(dir, other), []byte(other)[:len(other)%5], 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for range 5 {
		cmd := exec.Command("/proc/self/exe")
		cmd.Env = append(os.Environ(), childVariable+"=make", "PURERDMA_SHM_ADDR="+dir)
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadAll(out); err != nil { // it has made the file
			t.Fatal(err)
		}
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}
	live, err := MakeFile(dir)
	if err != nil {
		t.Fatal(err)
	}
	second, err := MakeFile(dir)
	if err != nil {
		t.Fatal(err)
	}
	if left := names(t, dir); len(left) != 5 {
		t.Errorf("left: %v, want the three of others, %s and %s", left, live.Name(), second.Name())
	}
	if err := errors.Join(live.Close(), second.Close()); err != nil {
		t.Error(err)
	}
}

func TestKilledAttacher(t *testing.T) {
	dir := tmpfs(t)
	for range 3 {
		f, err := MakeFile(dir)
		if err != nil {
			t.Fatal(err)
		}
		cmd := child(t, "attach", filepath.Join(dir, f.Name()))
		c, err := f.Attached(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		buf := make([]byte, 100_000)
		for range 10 {
			if _, err := c.Recv(t.Context(), buf); err != nil {
				t.Fatal(err)
			}
		}
		_ = cmd.Process.Kill()
		for err == nil {
			_, err = c.Recv(t.Context(), buf)
		}
		if !errors.Is(err, ErrPeerGone) {
			t.Error(err)
		}
		_ = cmd.Wait()
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	}
	if left := names(t, dir); len(left) != 0 {
		t.Errorf("left: %v", left)
	}
}

// userNamespace says why this process may not make user namespaces, nil if it may. It asks without mappings of users: where the kernel
// refuses a process with them, as it does under chroot and in many containers, package syscall leaves the two ends of a pipe open.
var userNamespace = sync.OnceValue(func() error {
	cmd := exec.Command("/proc/self/exe", "-test.run=^$")
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWUSER}
	if err := cmd.Start(); err != nil {
		return err
	}
	_ = cmd.Wait() // it may find nothing to do for a user that has no name
	return nil
})

// apart starts a process in namespaces of its own, as this user; who is not root has a user namespace, too, in which it may mount.
func apart(t *testing.T, flags uintptr) *syscall.SysProcAttr {
	t.Helper()
	a := &syscall.SysProcAttr{Cloneflags: flags}
	if os.Geteuid() != 0 {
		if err := userNamespace(); err != nil {
			t.Skipf("no user namespaces here: %v", err)
		}
		a.Cloneflags |= syscall.CLONE_NEWUSER
		a.AmbientCaps = []uintptr{unix.CAP_SYS_ADMIN}
		a.UidMappings = []syscall.SysProcIDMap{{ContainerID: os.Geteuid(), HostID: os.Geteuid(), Size: 1}}
		a.GidMappings = []syscall.SysProcIDMap{{ContainerID: os.Getegid(), HostID: os.Getegid(), Size: 1}}
	}
	return a
}

// mounted runs one test again in a mount namespace of its own, with a tmpfs mounted as options say.
func mounted(t *testing.T, options string) (dir string, inside bool) {
	t.Helper()
	if dir = os.Getenv("PURERDMA_SHM_TMPFS"); dir != "" {
		flags := uintptr(0)
		if strings.HasPrefix(options, "ro,") {
			flags, options = unix.MS_RDONLY, options[3:]
		}
		if err := unix.Mount("none", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
			t.Fatal(err)
		}
		if err := unix.Mount("tmpfs", dir, "tmpfs", flags, options); err != nil {
			t.Fatal(err)
		}
		return dir, true
	}
	cmd := exec.Command("/proc/self/exe", "-test.run", "^"+t.Name()+"$", "-test.v")
	cmd.Env = append(os.Environ(), "PURERDMA_SHM_TMPFS="+t.TempDir())
	cmd.SysProcAttr = apart(t, syscall.CLONE_NEWNS)
	out, err := cmd.CombinedOutput()
	switch {
	case errors.Is(err, unix.EPERM) || errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOSPC):
		t.Skipf("no mount namespace here: %v", err)
	case err != nil || !bytes.Contains(out, []byte("--- PASS: "+t.Name())):
		t.Errorf("%v\n%s", err, out)
	}
	return "", false
}

func TestSmallDirectory(t *testing.T) {
	dir, inside := mounted(t, "size=1m")
	if !inside {
		return
	}
	if _, err := MakeFile(dir); !errors.Is(err, unix.ENOSPC) || !strings.Contains(err.Error(), "bytes are free of 1048576") {
		t.Errorf("1 MiB: %v", err)
	}
	if left := names(t, dir); len(left) != 0 {
		t.Errorf("left: %v", left)
	}
	transports, infos := ranks(t, Config{Dir: dir})
	infos[0].Socket, infos[1].Socket = "", "" // so that memory is by file
	if _, err := transports[1].Setup(driver.Request{Self: &infos[1], Peer: &infos[0]}, new(driver.Blob)); !errors.Is(err, unix.ENOSPC) ||
		!strings.Contains(err.Error(), "receiving from rank 0") || !strings.Contains(err.Error(), "--shm-size") {
		t.Errorf("a rank's end: %v", err)
	}
	small := []Option{WithCells(minCells), WithData(minData)}
	a, _ := joinFile(t, dir, small...) // a small one has room
	if err := a.Send(t.Context(), make([]byte, 60_000)); err != nil {
		t.Error(err)
	}
	fill, err := os.Create(filepath.Join(dir, "fill"))
	if err != nil {
		t.Fatal(err)
	}
	for err == nil {
		_, err = fill.Write(make([]byte, 4096))
	}
	_ = fill.Close()
	if _, err := MakeFile(dir, small...); !errors.Is(err, unix.ENOSPC) || !strings.Contains(err.Error(), " 0 bytes are free") {
		t.Errorf("0 bytes free: %v", err)
	}
	if err := a.Send(t.Context(), make([]byte, 3_000)); err != nil { // reserved, so no SIGBUS
		t.Error(err)
	}
}

func TestReadOnlyDirectory(t *testing.T) {
	dir, inside := mounted(t, "ro,size=1m")
	if !inside {
		return
	}
	if _, err := MakeFile(dir); !errors.Is(err, unix.EROFS) || !strings.Contains(err.Error(), "read-only") {
		t.Error(err)
	}
}

func TestNoDirectory(t *testing.T) {
	if _, err := MakeFile(filepath.Join(t.TempDir(), "missing")); !errors.Is(err, unix.ENOENT) {
		t.Error(err)
	}
}
