package kernel

import (
	"context"
	"errors"
	"io/fs"

	"github.com/purerdma/purerdma/ibverbs/internal/uverbs"
)

// ErrInterrupted says that a list changed each time that it was asked for.
var ErrInterrupted = errors.New("list changed while it was read")

// World is what the package sees of the machine. Default is the real one.
type World struct {
	Kernel uverbs.Kernel
	Sys    fs.FS  // /sys
	Dev    fs.FS  // /dev
	DevDir string // where Dev is, for system calls
	Proc   fs.FS  // /proc, for the names of processes
	// Netlink asks the device client of RDMA netlink: one command (uapi
	// NLDevCmd…) with encoded attributes. It returns the attributes of each
	// message of the answer. With ErrInterrupted they may be incomplete.
	Netlink func(cmd uint16, dump bool, attrs []byte) ([][]byte, error)
	// Uevents calls got for each event of the kernel's device model until ctx
	// is done. An error before that means that there are none to be had.
	Uevents func(ctx context.Context, got func(msg []byte)) error
	// InterfaceName is the name of a net device of this network namespace, ""
	// if there is none with this index.
	InterfaceName func(index int) string
	// NetDevice is the name of the RDMA device that a net device belongs to.
	NetDevice func(name string) (string, error)
}
