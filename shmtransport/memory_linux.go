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
	if err := allocate(fd, int64(g.size())); err != nil {
		return offheap.Span{}, err
	}
	span, err := offheap.MapFile(fd, 0, g.size())
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

// attach maps memory that another process made, after its size and header have been checked. fd stays the caller's.
func attach(fd int) (offheap.Span, geometry, error) {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return offheap.Span{}, geometry{}, os.NewSyscallError("fstat", err)
	}
	largest := geometry{maxCells, maxData}.size()
	if st.Mode&unix.S_IFMT != unix.S_IFREG || st.Size < pageSize || st.Size > int64(largest) {
		return offheap.Span{}, geometry{}, fmt.Errorf("%w: a file of mode %#o with %d bytes, want a regular one of %d to %d", errGeometry, st.Mode, st.Size, pageSize, largest)
	}
	span, err := offheap.MapFile(fd, 0, int(st.Size))
	if err != nil {
		return offheap.Span{}, geometry{}, err
	}
	g, err := decodeGeometry([headerText]byte(span.Bytes()), st.Size)
	if err != nil {
		return offheap.Span{}, geometry{}, errors.Join(err, span.Release())
	}
	return span, g, nil
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
