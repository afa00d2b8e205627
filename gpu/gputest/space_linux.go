package gputest

import (
	"os"
	"sort"
	"sync"

	"golang.org/x/sys/unix"
)

// space is the addresses of one driver: numbers that stand for bytes in memory
// files, or of the host.
type space struct {
	mu     sync.RWMutex
	next   uint64
	ranges []span // by address
}

// span is bytes that have an address.
type span struct {
	at    uint64
	bytes []byte
	// of is the device, -1 for the host.
	of int
	// file is what it shows, nil for host memory; whole are bytes that came from
	// Alloc, which a legacy handle can name.
	file  *os.File
	whole bool
}

// first is an address that no process has: the upper half is the kernel's.
const first = 0x9000_0000_0000_0000

func newSpace() *space { return &space{next: first} }

// reserve gives n bytes of addresses, with a gap behind them.
func (s *space) reserve(n int) uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	at := s.next
	s.next += (uint64(n)+2*granularity-1)&^(granularity-1) + granularity
	return at
}

// put makes sp known. It must not lie over another.
func (s *space) put(sp span) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	i := sort.Search(len(s.ranges), func(i int) bool { return s.ranges[i].at >= sp.at })
	if i < len(s.ranges) && s.ranges[i].at < sp.at+uint64(len(sp.bytes)) {
		return false
	}
	if i > 0 && s.ranges[i-1].at+uint64(len(s.ranges[i-1].bytes)) > sp.at {
		return false
	}
	s.ranges = append(s.ranges, span{})
	copy(s.ranges[i+1:], s.ranges[i:])
	s.ranges[i] = sp
	return true
}

// take removes the span that begins at at.
func (s *space) take(at uint64) (sp span, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range s.ranges {
		if s.ranges[i].at == at {
			sp = s.ranges[i]
			s.ranges = append(s.ranges[:i], s.ranges[i+1:]...)
			return sp, true
		}
	}
	return span{}, false
}

// find is the span in which an address lies.
func (s *space) find(at uint64) (span, bool) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	i := sort.Search(len(s.ranges), func(i int) bool { return s.ranges[i].at > at }) - 1
	if i < 0 || at >= s.ranges[i].at+uint64(len(s.ranges[i].bytes)) {
		return span{}, false
	}
	return s.ranges[i], true
}

// each calls f with the pieces of the n bytes at at, and reports whether all are
// there.
func (s *space) each(at uint64, n int, f func([]byte)) bool {
	for n > 0 {
		sp, ok := s.find(at)
		if !ok {
			return false
		}
		piece := sp.bytes[at-sp.at:]
		piece = piece[:min(len(piece), n)]
		f(piece)
		at, n = at+uint64(len(piece)), n-len(piece)
	}
	return true
}

// newFile is a memory file of n bytes.
func newFile(n int) (*os.File, error) {
	fd, err := unix.MemfdCreate("gputest", unix.MFD_CLOEXEC)
	if err != nil {
		return nil, os.NewSyscallError("memfd_create", err)
	}
	f := os.NewFile(uintptr(fd), "device memory")
	if err := f.Truncate(int64(n)); err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

func mapFile(f *os.File, n int) ([]byte, error) {
	b, err := unix.Mmap(int(f.Fd()), 0, n, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	return b, os.NewSyscallError("mmap", err)
}
