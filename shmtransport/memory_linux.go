package shmtransport

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/purerdma/purerdma/internal/offheap"
	"github.com/purerdma/purerdma/shmtransport/internal/futex"
)

// makeMemfd makes memory of a connection as a sealed memfd: it has no name that could be left behind, and nobody can make it shorter
// under a process that has it mapped. The pages are reserved, so a lack of memory is an error of this call and not a SIGBUS later.
func makeMemfd(g geometry) (fd int, span offheap.Span, err error) {
	if err := g.check(); err != nil {
		return -1, span, err
	}
	fd, err = unix.MemfdCreate("purerdma-shm", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		return -1, span, os.NewSyscallError("memfd_create", err)
	}
	if span, err = reserve(fd, g); err == nil {
		if _, err = unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, sealed|unix.F_SEAL_SEAL); err == nil {
			return fd, span, nil
		}
		err = errors.Join(os.NewSyscallError("sealing the memfd", err), span.Release())
	}
	return -1, offheap.Span{}, errors.Join(err, unix.Close(fd))
}

// sealed keeps the size as it is.
const sealed = unix.F_SEAL_SHRINK | unix.F_SEAL_GROW

// reserve gives a new file its size and all its pages, maps it and writes the header.
func reserve(fd int, g geometry) (offheap.Span, error) {
	if err := allocate(fd, g.size()); err != nil {
		return offheap.Span{}, err
	}
	span, err := offheap.MapFile(fd, 0, g.rings())
	if err != nil {
		return offheap.Span{}, err
	}
	h, _ := views(span, g)
	g.encode(&h.text)
	return span, nil
}

func allocate(fd int, size int64) error {
	for {
		switch err := unix.Fallocate(fd, 0, 0, size); err {
		case nil:
			return nil
		case unix.EINTR:
		default:
			return fmt.Errorf("reserving %d bytes of shared memory: %w", size, os.NewSyscallError("fallocate", err))
		}
	}
}

// attach maps the rings in memory that another process made, after its size and header have been checked. fd stays the caller's.
func attach(fd int) (offheap.Span, geometry, error) {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return offheap.Span{}, geometry{}, os.NewSyscallError("fstat", err)
	}
	largest := geometry{maxCells, maxData, maxExtra}.size()
	if st.Mode&unix.S_IFMT != unix.S_IFREG || st.Size < pageSize || st.Size > largest {
		return offheap.Span{}, geometry{}, fmt.Errorf("%w: a file of mode %#o with %d bytes, want a regular one of %d to %d", errGeometry, st.Mode, st.Size, pageSize, largest)
	}
	var text [headerText]byte
	if n, err := unix.Pread(fd, text[:], 0); err != nil || n != len(text) {
		return offheap.Span{}, geometry{}, fmt.Errorf("%w: reading the header gave %d bytes (%v)", errGeometry, n, err)
	}
	g, err := decodeGeometry(text, st.Size)
	if err != nil {
		return offheap.Span{}, geometry{}, err
	}
	span, err := offheap.MapFile(fd, 0, g.rings())
	return span, g, err
}

// attachMemfd is attach for a descriptor that came from a peer, which must not be able to make it shorter.
func attachMemfd(fd int) (offheap.Span, geometry, error) {
	seals, err := unix.FcntlInt(uintptr(fd), unix.F_GET_SEALS, 0)
	if err != nil || seals&sealed != sealed {
		return offheap.Span{}, geometry{}, fmt.Errorf("%w: a descriptor with seals %#x (%v), want a memfd with F_SEAL_SHRINK and F_SEAL_GROW", errGeometry, seals, err)
	}
	return attach(fd)
}

// barriers reports whether this process can ask for barriers and be asked. Both must, or both do without.
func barriers() bool { return futex.Register() == nil }
