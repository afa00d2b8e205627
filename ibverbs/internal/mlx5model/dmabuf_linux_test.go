package mlx5model

import (
	"bytes"
	"errors"
	"math"
	"os"
	"syscall"
	"testing"

	"github.com/purerdma/purerdma/ibverbs/driver"
	"golang.org/x/sys/unix"
)

// memoryFile is a file of n bytes that stands for a dma-buf, with its pages mapped.
func memoryFile(t *testing.T, n int) (fd int, b []byte) {
	t.Helper()
	fd, err := unix.MemfdCreate("dmabuf", unix.MFD_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	f := os.NewFile(uintptr(fd), "dmabuf")
	t.Cleanup(func() { _ = f.Close() })
	if err := f.Truncate(int64(n)); err != nil {
		t.Fatal(err)
	}
	b, err = unix.Mmap(fd, 0, n, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Munmap(b) })
	return fd, b
}

// TestDMABuf has our driver write to memory that only a file is, and read from it.
func TestDMABuf(t *testing.T) {
	const size, off, iova = 4 * pageSize, pageSize + 256, 1<<40 + 256
	a := &actor{t: t}
	a.begin(NewLocal(New(Config{Fault: func(s string) { t.Error("model: " + s) }})))
	a.must(a.dev.Probe(driver.FeatureDMABuf))
	fd, b := memoryFile(t, size)
	const access = remote | driver.LocalWrite
	for _, c := range []struct {
		what string
		d    driver.DMABuf
		a    driver.Access
		want error
	}{
		{"no file", driver.DMABuf{FD: 1 << 20, Length: 8}, access, syscall.EBADF},
		{"a negative file", driver.DMABuf{FD: -1, Length: 8}, access, syscall.EBADF},
		{"behind the end", driver.DMABuf{FD: fd, Offset: size - 8, Length: 9, IOVA: pageSize - 8}, access, syscall.EINVAL},
		{"an end beyond all numbers", driver.DMABuf{FD: fd, Offset: math.MaxUint64 - 7, Length: 9, IOVA: pageSize - 8}, access, syscall.EINVAL},
		{"nothing", driver.DMABuf{FD: fd}, access, syscall.EINVAL},
		{"another place in the page", driver.DMABuf{FD: fd, Length: 8, IOVA: 8}, access, syscall.EINVAL},
		{"remote rights alone", driver.DMABuf{FD: fd, Length: 8}, driver.RemoteWrite, syscall.EINVAL},
	} {
		if mr, err := a.pd.RegDMABuf(c.d, c.a); !errors.Is(err, c.want) || mr != nil {
			t.Errorf("%s: %v, want %v", c.what, err, c.want)
		}
	}
	mr, err := a.pd.RegDMABuf(driver.DMABuf{FD: fd, Offset: off, Length: 512, IOVA: iova}, access)
	a.must(err)
	lkey, rkey := mr.Keys()
	copy(a.mem.Bytes(), "written to memory that a file is")
	a.post(driver.SendWR{ID: 2, Op: driver.OpWrite, Flags: driver.Signaled, SGL: []driver.SGE{a.at(0, 32)}, Remote: driver.Remote{Addr: iova + 16, RKey: rkey}})
	a.await(1)
	if !bytes.Equal(b[off+16:][:32], a.mem.Bytes()[:32]) {
		t.Errorf("the file has %q", b[off+16:][:32])
	}
	a.post(driver.SendWR{ID: 2, Op: driver.OpWrite, Flags: driver.Signaled, SGL: []driver.SGE{{Addr: iova + 16, Length: 32, LKey: lkey}},
		Remote: driver.Remote{Addr: a.mem.Addr() + 1024, RKey: a.rkey}})
	a.await(1)
	if !bytes.Equal(b[off+16:][:32], a.mem.Bytes()[1024:][:32]) {
		t.Errorf("read %q", a.mem.Bytes()[1024:][:32])
	}
	a.must(mr.Close())
	a.end()
}

// TestDMABufOfC has libmlx5 register a file that only the program has open.
func TestDMABufOfC(t *testing.T) {
	l := newLab(t, false)
	if out := l.run(t, buildC(t, "testdata/dmabuf")); out != "registered\n" {
		t.Errorf("%q", out)
	}
}
