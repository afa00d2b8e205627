package main

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"net"
	"net/netip"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/purerdma/purerdma/bench/control"
	"github.com/purerdma/purerdma/bench/measure"
)

// reference is the same traffic over ordinary UDP sockets, written as fast as it can be. Those that stream are connected, so that nothing but
// the bytes goes through each call; those of the ping-pongs are not, as a RoCE v2 device's cannot be.
type reference struct {
	streamFD, polledFD int
	polledTo           unix.SockaddrInet4
	waited             *net.UDPConn
	waitedTo           netip.AddrPort
	local              [4]byte
	window             int
	buf                []byte
}

const (
	// overhead is the bytes of a packet in the middle of a write beside its payload: headers and checksum.
	overhead = 16
	// superPacket is the largest that the kernel cuts.
	superPacket = 65_487
	socketBytes = 8 << 20
	// maxWindow is softroce's own bound.
	maxWindow = 1 << 20
)

// newReference has its sockets at the address of the device, which costs the kernel what the device's costs it.
func newReference(local netip.Addr) (*reference, error) {
	r := &reference{streamFD: -1, polledFD: -1, buf: make([]byte, 1<<21), local: local.As4()}
	var err error
	if r.streamFD, err = r.socket(true); err != nil {
		return nil, errors.Join(err, r.Close())
	}
	if r.polledFD, err = r.socket(false); err != nil {
		return nil, errors.Join(err, r.Close())
	}
	if r.waited, err = net.ListenUDP("udp4", net.UDPAddrFromAddrPort(netip.AddrPortFrom(local, 0))); err != nil {
		return nil, errors.Join(err, r.Close())
	}
	granted, err := unix.GetsockoptInt(r.streamFD, unix.SOL_SOCKET, unix.SO_RCVBUF)
	if err != nil {
		return nil, errors.Join(os.NewSyscallError("getsockopt", err), r.Close())
	}
	r.window = min(granted*3/4, maxWindow) * 8 / 9
	return r, nil
}

// socket is one at a free port.
func (r *reference) socket(merges bool) (int, error) {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return -1, os.NewSyscallError("socket", err)
	}
	options := [][3]int{{unix.SOL_SOCKET, unix.SO_RCVBUF, socketBytes}, {unix.SOL_SOCKET, unix.SO_SNDBUF, socketBytes},
		{unix.IPPROTO_IP, unix.IP_MTU_DISCOVER, unix.IP_PMTUDISC_DO}}
	if merges {
		options = append(options, [3]int{unix.IPPROTO_UDP, unix.UDP_GRO, 1})
	}
	for _, o := range options {
		if err := unix.SetsockoptInt(fd, o[0], o[1], o[2]); err != nil {
			return -1, errors.Join(os.NewSyscallError("setsockopt", err), unix.Close(fd))
		}
	}
	if err := unix.Bind(fd, &unix.SockaddrInet4{Addr: r.local}); err != nil {
		return -1, errors.Join(os.NewSyscallError("bind", err), unix.Close(fd))
	}
	return fd, nil
}

func portOf(fd int) int {
	if a, err := unix.Getsockname(fd); err == nil {
		return a.(*unix.SockaddrInet4).Port
	}
	return 0
}

func (r *reference) ports() ports {
	return ports{Addr: netip.AddrFrom4(r.local), Stream: portOf(r.streamFD), Polled: portOf(r.polledFD), Waited: r.waited.LocalAddr().(*net.UDPAddr).Port}
}

func (r *reference) connect(p ports) error {
	to := p.Addr.As4()
	r.polledTo = unix.SockaddrInet4{Addr: to, Port: p.Polled}
	r.waitedTo = netip.AddrPortFrom(p.Addr, uint16(p.Waited))
	return os.NewSyscallError("connect", unix.Connect(r.streamFD, &unix.SockaddrInet4{Addr: to, Port: p.Stream}))
}

func (r *reference) Close() error {
	var errs []error
	for _, fd := range []int{r.streamFD, r.polledFD} {
		if fd >= 0 {
			errs = append(errs, unix.Close(fd))
		}
	}
	if r.waited != nil {
		errs = append(errs, r.waited.Close())
	}
	return errors.Join(errs...)
}

// stream sends datagrams as those of writes with a path MTU for a time, and returns GB/s of their payload.
func (r *reference) stream(ctx context.Context, mtu int, crc bool, slice time.Duration) (float64, error) {
	seg := mtu + overhead
	if err := unix.SetsockoptInt(r.streamFD, unix.IPPROTO_UDP, unix.UDP_SEGMENT, seg); err != nil {
		return 0, os.NewSyscallError("setsockopt", err)
	}
	per := superPacket / seg
	data := r.buf[:message/mtu*seg]
	w := waiter{ctx: ctx, fd: r.streamFD}
	sent, acked, at := 0, 0, 0
	var in [64]byte
	began := time.Now()
	for open := true; open || acked < sent; {
		if open && (acked == sent || sent-acked+per*mtu <= r.window) {
			n := min(per, (len(data)-at)/seg)
			run := data[at : at+n*seg]
			if crc {
				for k := range n {
					s := run[k*seg : (k+1)*seg]
					binary.LittleEndian.PutUint32(s[seg-4:], crc32.ChecksumIEEE(s[:seg-4]))
				}
			}
			switch _, err := unix.Write(r.streamFD, run); err {
			case nil:
				sent += n * mtu
				if at += n * seg; at == len(data) {
					at, open = 0, time.Since(began) < slice
				}
				continue
			case unix.EAGAIN:
			default:
				return 0, os.NewSyscallError("write", err)
			}
		}
		n, err := w.read(in[:])
		if err != nil {
			return 0, err
		}
		if n == 8 {
			acked = int(binary.LittleEndian.Uint64(in[:]))
		}
	}
	took := time.Since(began)
	_, err := unix.Write(r.streamFD, []byte{1})
	return float64(sent) / float64(took.Nanoseconds()), os.NewSyscallError("write", err)
}

// sink is the other end of stream.
func (r *reference) sink(ctx context.Context, mtu int, crc bool) error {
	if err := unix.SetsockoptInt(r.streamFD, unix.IPPROTO_UDP, unix.UDP_SEGMENT, 0); err != nil {
		return os.NewSyscallError("setsockopt", err)
	}
	seg := mtu + overhead
	w := waiter{ctx: ctx, fd: r.streamFD}
	total := 0
	var ack [8]byte
	for {
		n, err := w.read(r.buf[:1<<16])
		if err != nil {
			return err
		}
		if n == 1 {
			return nil
		}
		if n == 0 || n%seg != 0 {
			return fmt.Errorf("a datagram of %d bytes: %w", n, control.ErrProtocol)
		}
		for at := 0; crc && at < n; at += seg {
			s := r.buf[at : at+seg]
			if crc32.ChecksumIEEE(s[:seg-4]) != binary.LittleEndian.Uint32(s[seg-4:]) {
				return errors.New("a datagram of the reference was damaged")
			}
		}
		total += n / seg * mtu
		binary.LittleEndian.PutUint64(ack[:], uint64(total))
		if _, err := unix.Write(r.streamFD, ack[:]); err != nil {
			return os.NewSyscallError("write", err)
		}
	}
}

// waiter reads as softroce does: it looks for a while, then sleeps.
type waiter struct {
	ctx context.Context
	fd  int
}

func (w *waiter) read(b []byte) (int, error) {
	look := measure.NewLooker(w.ctx, looksPerYield)
	for {
		for range looks {
			n, err := unix.Read(w.fd, b)
			if err == nil {
				return n, nil
			}
			if err != unix.EAGAIN && err != unix.EINTR {
				return 0, os.NewSyscallError("read", err)
			}
			if err := look.Again(); err != nil {
				return 0, err
			}
		}
		if _, err := unix.Poll([]unix.PollFd{{Fd: int32(w.fd), Events: unix.POLLIN}}, 100); err != nil && err != unix.EINTR {
			return 0, os.NewSyscallError("poll", err)
		}
	}
}

// byPolling is a socket that never sleeps.
func (r *reference) byPolling() way {
	var out, in [8]byte
	return way{
		send: func(n uint64) error {
			binary.NativeEndian.PutUint64(out[:], n)
			return os.NewSyscallError("sendto", unix.Sendto(r.polledFD, out[:], 0, &r.polledTo))
		},
		recv: func(ctx context.Context, n uint64) error {
			for look := measure.NewLooker(ctx, looksPerYield); ; {
				_, err := unix.Read(r.polledFD, in[:])
				if err == nil {
					return numbered(in[:], n)
				}
				if err != unix.EAGAIN && err != unix.EINTR {
					return os.NewSyscallError("read", err)
				}
				if err := look.Again(); err != nil {
					return err
				}
			}
		},
		end: func() error { return nil },
	}
}

// byWaiting is a socket of package net, which sleeps at once.
func (r *reference) byWaiting() way {
	var out, in [8]byte
	late := r.waited.SetReadDeadline(time.Now().Add(sliceLimit))
	return way{
		send: func(n uint64) error {
			if late != nil {
				return late
			}
			binary.NativeEndian.PutUint64(out[:], n)
			_, err := r.waited.WriteToUDPAddrPort(out[:], r.waitedTo)
			return err
		},
		recv: func(ctx context.Context, n uint64) error {
			if _, _, err := r.waited.ReadFromUDPAddrPort(in[:]); err != nil {
				return err
			}
			return numbered(in[:], n)
		},
		end: func() error { return nil },
	}
}

func numbered(b []byte, want uint64) error {
	if got := binary.NativeEndian.Uint64(b); got != want {
		return fmt.Errorf("message %d came where %d was due: %w", got, want, control.ErrProtocol)
	}
	return nil
}
