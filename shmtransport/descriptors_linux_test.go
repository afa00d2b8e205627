package shmtransport

import (
	"errors"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// withoutDescriptors fills this process's table of open files.
func withoutDescriptors(t *testing.T) {
	var before unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &before); err != nil {
		t.Fatal(err)
	}
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: 256, Max: before.Max}); err != nil {
		t.Fatal(err)
	}
	var files []*os.File
	t.Cleanup(func() {
		for _, f := range files {
			_ = f.Close()
		}
		if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &before); err != nil {
			t.Error(err)
		}
	})
	for {
		f, err := os.Open(os.DevNull)
		if err != nil {
			return
		}
		files = append(files, f)
	}
}

// A process that cannot take one descriptor more says so, to its peer too, who would look for the fault at itself.
func TestNoDescriptorForTheMemory(t *testing.T) {
	g := geometry{minCells, minData, 0}
	var text [headerText]byte
	g.encode(&text)
	x, y := sockets(t)
	defer x.Close()
	fd := memfd(t, g.size(), text[:], sealed)
	if _, _, err := x.WriteMsgUnix(packet{}.encode(), unix.UnixRights(fd), nil); err != nil {
		t.Fatal(err)
	}
	_ = unix.Close(fd)
	t.Run("takes", func(t *testing.T) {
		withoutDescriptors(t)
		if fd, err := unix.Dup(0); err == nil { // as the one that was closed above
			defer unix.Close(fd)
		}
		c, err := Take(t.Context(), y)
		if err == nil {
			_ = c.Close()
		}
		if !errors.Is(err, unix.EMFILE) {
			t.Errorf("%v, want EMFILE", err)
		}
	})
	if _, err := answer(x); err == nil || !strings.Contains(err.Error(), "refused") || !strings.Contains(err.Error(), "too many open files") {
		t.Errorf("the peer was told: %v", err)
	}
}
