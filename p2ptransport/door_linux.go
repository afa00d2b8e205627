package p2ptransport

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/purerdma/purerdma/internal/cause"
	"github.com/purerdma/purerdma/internal/unixdial"
)

// door gives descriptors of pieces to who asks for them by token over a Unix
// socket: processes of the same user on this machine.
type door struct {
	l    *net.UnixListener
	log  *slog.Logger
	over sync.WaitGroup

	mu     sync.Mutex
	pieces map[uint64]*piece
	open   map[*net.UnixConn]struct{}
	closed bool
}

const (
	// visit bounds how long a guest may take, and a fetch.
	visit    = 10 * time.Second
	maxGuest = 256
	// maxLinks bounds how many of one piece's guests stay; there is one peer.
	maxLinks = 4
	// An answer is given and the descriptor, or refused and why. Who was given stays, and hears left when the owner closes; an end without
	// that is the owner's death.
	given     = 1
	refused   = 2
	left      = 3
	maxReason = 200
)

func openDoor(log *slog.Logger) (*door, error) {
	l, err := net.ListenUnix("unixpacket", &net.UnixAddr{Name: "@purerdma-gpu-" + rand.Text(), Net: "unixpacket"})
	if err != nil {
		return nil, fmt.Errorf("socket for descriptors of GPU memory: %w", err)
	}
	d := &door{l: l, log: log, pieces: map[uint64]*piece{}, open: map[*net.UnixConn]struct{}{}}
	d.over.Go(d.serve)
	return d, nil
}

// admit lets guests have the piece, and gives the name of the socket.
func (d *door) admit(p *piece) (string, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return "", net.ErrClosed
	}
	d.pieces[p.token] = p
	name := d.l.Addr().String()
	if len(name) > socketName {
		return "", fmt.Errorf("socket name %q is longer than %d bytes", name, socketName)
	}
	return name, nil
}

// dismiss turns guests away from now on, and tells those that were given p. It waits for those that are being given it, so that none of them
// is the last user of p: who frees it can tell what went wrong.
func (d *door) dismiss(p *piece) {
	d.mu.Lock()
	delete(d.pieces, p.token)
	d.mu.Unlock()
	p.guests.Wait()
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, nc := range p.links {
		_ = nc.SetDeadline(time.Now().Add(visit)) // a guest that reads nothing
		_, _ = nc.Write([]byte{left})             // it may be gone
		_ = nc.Close()
	}
	p.links = nil
}

// stay keeps a guest that was given p until p is dismissed.
func (d *door) stay(p *piece, nc *net.UnixConn) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(p.links) == maxLinks {
		return fmt.Errorf("%d processes have it", maxLinks)
	}
	delete(d.open, nc)
	p.links = append(p.links, nc)
	return nc.SetDeadline(time.Time{})
}

func (d *door) serve() {
	for {
		nc, err := d.l.AcceptUnix()
		if err != nil {
			if errors.Is(err, net.ErrClosed) {
				return
			}
			time.Sleep(10 * time.Millisecond) // a lack of descriptors that may pass
			continue
		}
		d.mu.Lock()
		full := d.closed || len(d.open) >= maxGuest
		if !full {
			d.open[nc] = struct{}{}
		}
		d.mu.Unlock()
		if full {
			_ = nc.Close()
			continue
		}
		d.over.Go(func() {
			stays, err := d.guest(nc)
			if stays {
				return
			}
			if err != nil {
				d.log.Warn("a process asked for GPU memory and got none", "err", err)
				text := err.Error()
				_, _ = nc.Write(append([]byte{refused}, text[:min(len(text), maxReason)]...)) // it may be gone
			}
			d.mu.Lock()
			delete(d.open, nc)
			d.mu.Unlock()
			_ = nc.Close()
		})
	}
}

// guest answers one question: a token, for which the descriptor goes back, if there is one.
func (d *door) guest(nc *net.UnixConn) (stays bool, err error) {
	if err := nc.SetDeadline(time.Now().Add(visit)); err != nil {
		return false, err
	}
	if err := sameUser(nc); err != nil {
		return false, err
	}
	var b [8]byte
	if n, err := nc.Read(b[:]); err != nil || n != len(b) {
		return false, errors.Join(fmt.Errorf("%d bytes of a token of %d", n, len(b)), err)
	}
	token := binary.LittleEndian.Uint64(b[:])
	d.mu.Lock()
	p := d.pieces[token]
	if p != nil {
		p.guests.Add(1)
	}
	d.mu.Unlock()
	if p == nil {
		return false, errors.New("token of nothing that is here")
	}
	defer p.guests.Done()
	if p.kind == descriptor {
		err = give(nc, p)
	} else {
		_, err = nc.Write([]byte{given})
	}
	if err != nil {
		return false, err
	}
	if err := d.stay(p, nc); err != nil {
		d.log.Warn("a process that has GPU memory will not hear of its end", "err", err)
		return false, nil
	}
	return true, nil
}

// give sends the descriptor of p.
func give(nc *net.UnixConn, p *piece) error {
	fd, err := p.c.Export(p.alloc)
	if err != nil {
		return err
	}
	_, _, err = nc.WriteMsgUnix([]byte{given}, unix.UnixRights(fd), nil)
	return errors.Join(err, unix.Close(fd))
}

// sameUser checks who is at the other end.
func sameUser(nc *net.UnixConn) error {
	raw, err := nc.SyscallConn()
	if err != nil {
		return err
	}
	var cred *unix.Ucred
	if err := errors.Join(raw.Control(func(fd uintptr) { cred, err = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED) }), err); err != nil {
		return err
	}
	if int(cred.Uid) != os.Geteuid() {
		return fmt.Errorf("process %d is of user %d, this one of %d", cred.Pid, cred.Uid, os.Geteuid())
	}
	return nil
}

func (d *door) close() error {
	d.mu.Lock()
	again := d.closed
	d.closed = true
	for nc := range d.open {
		_ = nc.SetDeadline(time.Unix(1, 0))
	}
	d.mu.Unlock()
	if again {
		return nil
	}
	err := d.l.Close()
	d.over.Wait()
	return err
}

// fetch asks the owner of a piece in the background.
type fetch struct {
	cancel context.CancelFunc
	done   chan struct{}
	fd     int // of a piece of kind descriptor, else -1
	nc     *net.UnixConn
	err    error
}

func startFetch(o *offer) *fetch {
	ctx, cancel := context.WithCancel(context.Background())
	f := &fetch{cancel: cancel, done: make(chan struct{}), fd: -1}
	socket, token, want := o.socket, o.token, o.kind == descriptor
	go func() {
		defer close(f.done)
		defer cancel()
		f.fd, f.nc, f.err = get(ctx, socket, token, want, visit)
	}()
	return f
}

// result is the descriptor once it is here, and the connection to the owner; both are the caller's then.
func (f *fetch) result() (fd int, nc *net.UnixConn, done bool, err error) {
	select {
	case <-f.done:
		return f.fd, f.nc, true, f.err
	default:
		return -1, nil, false, nil
	}
}

// drop ends a fetch whose result nobody wants.
func (f *fetch) drop() error {
	f.cancel()
	<-f.done
	var errs []error
	if f.fd >= 0 {
		errs = append(errs, unix.Close(f.fd))
	}
	if f.nc != nil {
		errs = append(errs, f.nc.Close())
	}
	return errors.Join(errs...)
}

// get asks at a socket for what a token stands for; with want that is a descriptor. It gives up when ctx ends, and when the owner has not
// answered within so long.
func get(ctx context.Context, socket string, token uint64, want bool, within time.Duration) (fd int, nc *net.UnixConn, err error) {
	fd, nc, err = ask(ctx, socket, token, want, time.Now().Add(within))
	var late net.Error
	switch {
	case err == nil:
	case ctx.Err() != nil:
		err = fmt.Errorf("ask its owner: %w", errors.Join(cause.Of(ctx), err))
	case errors.As(err, &late) && late.Timeout():
		err = fmt.Errorf("its owner, at %q, has not answered within %v; is its process stopped? %w", socket, within, err)
	}
	return fd, nc, err
}

// ask is get until a point in time.
func ask(ctx context.Context, socket string, token uint64, want bool, limit time.Time) (fd int, _ *net.UnixConn, err error) {
	nc, err := unixdial.Packet(ctx, socket, limit)
	if err != nil {
		return -1, nil, fmt.Errorf("ask its owner: %w", err)
	}
	if err := nc.SetDeadline(limit); err != nil {
		return -1, nil, errors.Join(err, nc.Close())
	}
	stop := context.AfterFunc(ctx, func() { _ = nc.SetDeadline(time.Unix(1, 0)) })
	defer func() {
		if !stop() && err == nil {
			err = cause.Of(ctx)
		}
		if err == nil {
			err = nc.SetDeadline(time.Time{})
		}
		if err == nil {
			return
		}
		err = errors.Join(err, nc.Close())
		if fd >= 0 {
			err = errors.Join(err, unix.Close(fd))
			fd = -1
		}
	}()
	if err := sameUser(nc); err != nil {
		return -1, nil, err
	}
	if _, err := nc.Write(binary.LittleEndian.AppendUint64(nil, token)); err != nil {
		return -1, nil, err
	}
	oob := make([]byte, unix.CmsgSpace(4))
	answer := make([]byte, 1+maxReason)
	n, got, flags, _, err := nc.ReadMsgUnix(answer, oob)
	switch {
	case err != nil || n == 0:
		return -1, nil, errors.Join(errors.New("its owner gives nothing"), err)
	case answer[0] == refused && got == 0:
		return -1, nil, fmt.Errorf("its owner refuses: %.200q", answer[1:n])
	}
	if !want && got == 0 {
		return -1, nc, nil
	}
	fd, err = oneRight(oob[:got], flags)
	return fd, nc, err
}

// life learns from the connection to a piece's owner when that ends.
type life struct {
	nc   *net.UnixConn
	over chan struct{}
	err  error // before over is closed
}

func watch(nc *net.UnixConn) *life {
	l := &life{nc: nc, over: make(chan struct{})}
	go func() {
		defer close(l.over)
		var b [1]byte
		if n, _ := nc.Read(b[:]); n == 1 && b[0] == left {
			l.err = io.EOF
		} else {
			l.err = ErrPeerGone
		}
	}()
	return l
}

// ended is io.EOF when the owner has closed, ErrPeerGone when it has died, else nil.
func (l *life) ended() error {
	select {
	case <-l.over:
		return l.err
	default:
		return nil
	}
}

func (l *life) close() error {
	err := l.nc.Close()
	<-l.over
	return err
}

// oneRight takes the descriptor out of a control message, and closes what else came.
func oneRight(oob []byte, flags int) (int, error) {
	messages, err := unix.ParseSocketControlMessage(oob)
	if err != nil {
		return -1, err
	}
	var fds []int
	for i := range messages {
		more, err := unix.ParseUnixRights(&messages[i])
		if err == nil {
			fds = append(fds, more...)
		}
	}
	if len(fds) == 1 && flags&unix.MSG_CTRUNC == 0 {
		unix.CloseOnExec(fds[0])
		return fds[0], nil
	}
	for _, fd := range fds {
		_ = unix.Close(fd)
	}
	if len(fds) == 0 && flags&unix.MSG_CTRUNC != 0 { // one was sent, and this process may have no more
		return -1, fmt.Errorf("its descriptor could not be taken: %w (ulimit -n)", unix.EMFILE)
	}
	return -1, fmt.Errorf("its owner sent %d descriptors, want 1", len(fds))
}
