package kernel

import (
	"context"
	"errors"
	"net"
	"os"
	"time"

	"github.com/Mellanox/rdmamap"
	"github.com/purerdma/purerdma/ibverbs/internal/uapi"
	"github.com/purerdma/purerdma/ibverbs/internal/uverbs"
	"github.com/purerdma/purerdma/internal/cause"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// Default is the machine that this process runs on.
func Default() World {
	return World{
		Kernel:        uverbs.Linux{},
		Sys:           os.DirFS("/sys"),
		Dev:           os.DirFS("/dev"),
		DevDir:        "/dev",
		Proc:          os.DirFS("/proc"),
		Netlink:       askNetlink,
		Uevents:       readUevents,
		InterfaceName: interfaceName,
		NetDevice:     rdmamap.GetRdmaDeviceForNetdevice,
	}
}

// rawAttrs is attributes that are encoded already.
type rawAttrs []byte

func (a rawAttrs) Len() int          { return len(a) }
func (a rawAttrs) Serialize() []byte { return a }

// netlinkTries bounds the repetition of a dump that a change interrupted.
const netlinkTries = 5

func askNetlink(cmd uint16, dump bool, attrs []byte) (msgs [][]byte, err error) {
	flags := unix.NLM_F_ACK
	if dump {
		flags = unix.NLM_F_DUMP
	}
	for range netlinkTries {
		req := nl.NewNetlinkRequest(uapi.NLNLDev<<10|int(cmd), flags)
		req.AddData(rawAttrs(attrs))
		msgs, err = req.Execute(uapi.NetlinkRDMA, 0)
		if !errors.Is(err, nl.ErrDumpInterrupted) {
			return msgs, err
		}
	}
	return msgs, ErrInterrupted
}

func interfaceName(index int) string {
	i, err := net.InterfaceByIndex(index)
	if err != nil {
		return ""
	}
	return i.Name
}

// readUevents listens to the kernel's own messages (multicast group 1).
func readUevents(ctx context.Context, got func([]byte)) error {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, unix.NETLINK_KOBJECT_UEVENT)
	if err != nil {
		return err
	}
	f := os.NewFile(uintptr(fd), "uevents")
	defer f.Close()
	if err := unix.Bind(fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK, Groups: 1}); err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, func() { _ = f.SetReadDeadline(time.Unix(1, 0)) })
	defer stop()
	msg := make([]byte, 16<<10) // UEVENT_BUFFER_SIZE is 2 KiB
	for {
		n, err := f.Read(msg)
		switch {
		case ctx.Err() != nil:
			return cause.Of(ctx)
		case errors.Is(err, unix.ENOBUFS): // some were dropped, which is a change like any
			got(nil)
		case err != nil:
			return err
		default:
			got(msg[:n])
		}
	}
}
