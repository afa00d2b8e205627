package uverbs

import (
	"io"
	"time"

	"github.com/purerdma/purerdma/internal/offheap"
)

// Kernel is the system calls that a Device makes. Linux is the real one;
// uverbstest has one of functions. Errors are bare errnos.
type Kernel interface {
	// Open opens a device node with close-on-exec. dev is its device number
	// (st_rdev), 0 if it is not a device.
	Open(path string) (fd int, dev uint64, err error)
	// Ioctl is RDMA_VERBS_IOCTL. frame is off-heap memory: the header, its
	// attributes, and all that they point to. It is written to.
	Ioctl(fd int, frame []byte) error
	// MapRing maps size bytes of a queue, shared and writable. The Span is
	// unmapped by its last Release.
	MapRing(fd int, off int64, size int) (offheap.Span, error)
	// OpenEvents takes over an event descriptor that an Ioctl returned.
	OpenEvents(fd int) (EventFile, error)
	// Close closes a descriptor of Open.
	Close(fd int) error
}

// EventFile is a file of fixed-size event records, served by the Go netpoller.
// A Read returns one record.
type EventFile interface {
	io.ReadCloser // Close wakes a Read, which returns os.ErrClosed
	// TryRead is a Read that returns EAGAIN where that one would wait.
	TryRead(p []byte) (int, error)
	SetReadDeadline(t time.Time) error
}

// Node is a device node as it was listed.
type Node struct {
	Path     string // "/dev/infiniband/uverbs0"
	Dev      uint64 // device number (dev_t); 0 = not known, not checked
	DriverID uint32 // enum rdma_driver_id; every command carries it
}

// UHW is what a driver adds to a command: In is copied to the kernel, Out is
// filled from it, with zeros where the kernel wrote nothing. Nil is none.
//
// Addressed is filled like Out, but the kernel learns of it by an address that is
// the whole input of the driver (struct rxe_modify_srq_cmd); In and Out are none
// then.
type UHW struct{ In, Out, Addressed []byte }

// fill hands out what frame.uhw made room for.
func (u UHW) fill(v []byte) {
	if len(u.Addressed) > 0 {
		copy(u.Addressed, v)
		return
	}
	copy(u.Out, v)
}
