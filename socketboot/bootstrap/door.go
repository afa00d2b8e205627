package bootstrap

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"sync"
	"time"

	"github.com/purerdma/purerdma/socketboot"
)

// door accepts connections of the job at one listener. Each is served in a goroutine of its own under a deadline, so that none
// holds up another; those that do not show the magic in time are dropped.
type door struct {
	ln     net.Listener
	net    socketboot.Net
	magic  uint64
	limit  int
	handle func(ctx context.Context, c *guest) // closes c or keeps it
	ctx    context.Context
	cancel context.CancelFunc
	work   sync.WaitGroup

	mu     sync.Mutex
	room   *sync.Cond
	guests []*guest // oldest first
	stuck  error    // why the last accept failed, nil after one that did not
}

// guest is an accepted connection.
type guest struct {
	net.Conn
	raw    net.Conn // beneath what Secure added
	proven bool     // has shown the magic; under the door's lock
	cancel context.CancelFunc
}

// refuse closes so that the peer sees an error and not a clean end.
func (g *guest) refuse() {
	if tcp, ok := g.raw.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0)
	}
	_ = g.raw.Close()
}

func openDoor(ln net.Listener, n socketboot.Net, magic uint64, limit int, handle func(context.Context, *guest)) *door {
	d := &door{ln: ln, net: n, magic: magic, limit: limit, handle: handle}
	d.room = sync.NewCond(&d.mu)
	d.ctx, d.cancel = context.WithCancel(context.Background())
	d.work.Go(d.accept)
	return d
}

// close ends all that is being served and waits for it.
func (d *door) close() {
	d.cancel()
	d.mu.Lock()
	d.room.Broadcast()
	d.mu.Unlock()
	_ = d.ln.Close()
	d.work.Wait()
}

func (d *door) accept() {
	for {
		c, err := d.ln.Accept()
		if d.ctx.Err() != nil {
			if err == nil {
				_ = c.Close()
			}
			return
		}
		d.tell(err)
		if err != nil { // too many open files, or a peer that went away in the queue: both pass
			select {
			case <-time.After(10 * time.Millisecond):
			case <-d.ctx.Done():
			}
			continue
		}
		d.admit(c)
	}
}

// tell notes how an accept ended, and logs the first of those in a row that failed.
func (d *door) tell(err error) {
	d.mu.Lock()
	first := d.stuck == nil
	d.stuck = err
	d.mu.Unlock()
	if err != nil && first {
		d.net.Log.Warn("bootstrap: accept failed, will try again", "err", err)
	}
}

// blame adds to an error of a wait that nobody could come in, where that is so.
func (d *door) blame(err error) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err == nil || d.stuck == nil {
		return err
	}
	return fmt.Errorf("%w; no connection could be accepted here: %w", err, d.stuck)
}

// admit makes room by dropping the oldest stranger. Where there is none it waits.
func (d *door) admit(c net.Conn) {
	ctx, cancel := context.WithTimeout(d.ctx, d.net.Deadlines.Total)
	g := &guest{Conn: c, raw: c, cancel: cancel}
	d.mu.Lock()
	defer d.mu.Unlock()
	for d.ctx.Err() == nil && len(d.guests) >= d.limit && !d.evict() {
		d.room.Wait()
	}
	if d.ctx.Err() != nil {
		cancel()
		_ = c.Close()
		return
	}
	d.guests = append(d.guests, g)
	d.work.Go(func() {
		d.serve(ctx, g)
		cancel()
		d.leave(g)
	})
}

func (d *door) evict() bool {
	for i, g := range d.guests {
		if !g.proven {
			g.cancel()
			d.guests = append(d.guests[:i:i], d.guests[i+1:]...)
			return true
		}
	}
	return false
}

func (d *door) leave(g *guest) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for i := range d.guests {
		if d.guests[i] == g {
			d.guests = append(d.guests[:i:i], d.guests[i+1:]...)
			break
		}
	}
	d.room.Signal()
}

func (d *door) serve(ctx context.Context, g *guest) {
	keepAlive(g.raw)
	start, hi := time.Now(), d.net.Deadlines.Hello
	c, err := d.net.AdmitPeer(ctx, g.raw)
	if err == nil {
		g.Conn = c
		early, cancel := context.WithDeadline(ctx, start.Add(hi))
		err = during(early, c, func() error { return readHello(c, d.magic) })
		cancel()
	}
	if err != nil {
		d.net.Log.Debug("bootstrap: a connection was dropped", "peer", g.raw.RemoteAddr(), "err", err)
		_ = g.raw.Close()
		return
	}
	d.mu.Lock()
	g.proven = true
	d.mu.Unlock()
	d.handle(ctx, g)
}

func readHello(c net.Conn, magic uint64) error {
	var b [helloLen]byte
	if _, err := io.ReadFull(c, b[:]); err != nil {
		return err
	}
	if got := binary.LittleEndian.Uint64(b[:]); got != magic {
		return fmt.Errorf("%w: another job's magic, or a stray", ErrProtocol)
	}
	if t := binary.LittleEndian.Uint32(b[8:]); t != socketType {
		return fmt.Errorf("%w: socket type %d, want %d", ErrProtocol, t, socketType)
	}
	return nil
}
