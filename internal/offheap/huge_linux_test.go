package offheap

import (
	"errors"
	"os"
	"testing"

	"golang.org/x/sys/unix"
)

func TestHugePages(t *testing.T) {
	const size = 2 << 20
	s, err := Map(size+1, Options{HugePage: size})
	if errors.Is(err, unix.ENOMEM) || errors.Is(err, unix.EINVAL) {
		t.Skipf("no pages of 2 MiB are reserved here: %v", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	if s.PageSize() != size || s.Len() != size+1 || len(s.m.all) != 2*size || s.Addr()%size != 0 {
		t.Errorf("%d bytes of %d at %#x in pages of %d", s.Len(), len(s.m.all), s.Addr(), s.PageSize())
	}
	if err := s.Release(); err != nil {
		t.Error(err)
	}
}

// TestHugeFile maps part of a file whose pages are huge, all of which the kernel
// has to unmap.
func TestHugeFile(t *testing.T) {
	const size = 2 << 20
	fd, err := unix.MemfdCreate("huge", unix.MFD_CLOEXEC|unix.MFD_HUGETLB|unix.MFD_HUGE_2MB)
	if err != nil {
		t.Skipf("no memfd with pages of 2 MiB: %v", err)
	}
	defer func() { _ = unix.Close(fd) }()
	if err := unix.Ftruncate(fd, 2*size); err != nil {
		t.Fatal(err)
	}
	if got := filePage(fd); got != size {
		t.Errorf("pages of %d bytes", got)
	}
	if _, err := MapFile(fd, int64(os.Getpagesize()), 1); !errors.Is(err, unix.EINVAL) {
		t.Errorf("offset within a huge page: %v", err)
	}
	s, err := MapFile(fd, size, 100)
	if errors.Is(err, unix.ENOMEM) {
		t.Skipf("no pages of 2 MiB are reserved here: %v", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	if s.PageSize() != size || s.Len() != 100 {
		t.Errorf("%d bytes in pages of %d", s.Len(), s.PageSize())
	}
	if err := s.Release(); err != nil {
		t.Error(err)
	}
}

// TestPopulate counts the pages that are there.
func TestPopulate(t *testing.T) {
	page := os.Getpagesize()
	s, err := Map(8*page, Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.Release() }()
	if err := unix.Madvise(s.m.all, unix.MADV_NOHUGEPAGE); err != nil && !errors.Is(err, unix.EINVAL) {
		t.Fatal(err)
	}
	part, err := s.Slice(2*page+100, page)
	if err != nil {
		t.Fatal(err)
	}
	if err := part.Populate(); errors.Is(err, unix.EINVAL) {
		t.Skipf("this kernel has no MADV_POPULATE_WRITE: %v", err)
	} else if err != nil {
		t.Fatal(err)
	}
	pages, err := present(s.m.all)
	if err != nil {
		t.Fatal(err)
	}
	for i, p := range pages {
		if want := i == 2 || i == 3; (p&1 == 1) != want {
			t.Errorf("page %d is there: %v", i, !want)
		}
	}
}
