package bootstrap

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"
)

// The connection on which a rank has reported stays until the root has answered, where both are this package's, so that each learns of
// the other's end at once. The root says that it holds it, which a rank of NCCL does not see; a rank that has seen it says so back, else
// the end of the connection means nothing: NCCL's ranks and roots close theirs at once.

// maxLines is how many ranks a root holds such connections of; it is not told of the death of others before it answers.
const maxLines = 1024

// hold keeps the connection of a rank that has come. The caller holds the lock.
func (r *Root) hold(e extInfo, g *guest) {
	if len(r.lines) >= maxLines || r.lines[e.rank] != nil {
		_ = g.Close()
		return
	}
	r.lines[e.rank] = g
	r.work.Go(func() {
		why := listenTo(g, e)
		if why == nil {
			return
		}
		r.mu.Lock()
		defer r.mu.Unlock()
		r.end(why)
	})
}

// listenTo reads what a rank says until its connection ends, and returns why the meeting must end, if it must.
func listenTo(g *guest, e extInfo) error {
	for held := false; ; {
		n, err := readLength(g)
		switch {
		case err == nil && n == holdMark:
			held = true
			continue
		case err == nil && n == noticeMark:
			var said notice
			if said, err = readNotice(g, e.size); err == nil {
				err = said.reason()
			}
		case err == nil:
			err = fmt.Errorf("%w: length %d from a rank that waits", ErrProtocol, n)
		default:
			err = fmt.Errorf("%w: %w", ErrDied, err)
		}
		if !held {
			return nil
		}
		return &RankError{Op: "meet", Rank: e.rank, Addr: e.ring.String(), Err: err}
	}
}

// letGo ends the connection of a rank that has been answered.
func (r *Root) letGo(ctx context.Context, rank int) {
	r.mu.Lock()
	g := r.lines[rank]
	r.mu.Unlock()
	if g != nil {
		release(ctx, g)
	}
}

// release tells a rank that it has been answered.
func release(ctx context.Context, g *guest) {
	_ = write(ctx, g, word(answeredMark))
	_ = g.Close()
}

// awaitHold is a rank's wait until the root has taken its report. The result is c if the root holds it, else nil, and c is closed.
func awaitHold(ctx context.Context, c net.Conn) (net.Conn, error) {
	var n int
	err := during(ctx, c, func() (err error) { n, err = readLength(c); return err })
	if err == nil && n == holdMark {
		if err = write(ctx, c, word(holdMark)); err == nil {
			return c, nil
		}
	} else if err == nil {
		err = fmt.Errorf("%w: an answer where none is due", ErrProtocol)
	}
	_ = c.Close()
	if isEOF(err) {
		err = nil
	}
	return nil, err
}

// watchRoot sends the error when the root ends without an answer. stop ends it and waits for it: with a reason, which the root is told.
func watchRoot(line net.Conn) (gone <-chan error, stop func(reason error)) {
	if line == nil {
		return nil, func(error) {}
	}
	out, ended := make(chan error, 1), make(chan struct{})
	go func() {
		defer close(ended)
		if n, err := readLength(line); err != nil {
			out <- fmt.Errorf("%w: %w", ErrNoRoot, err)
		} else if n != answeredMark {
			out <- fmt.Errorf("%w: length %d from the root", ErrProtocol, n)
		}
	}()
	return out, func(reason error) {
		if reason != nil && !errors.Is(reason, ErrNoRoot) {
			_ = line.SetWriteDeadline(time.Now().Add(linger))
			n := notice{kind: aborted, text: reason.Error()}
			_, _ = line.Write(n.frame())
		}
		_ = line.Close()
		<-ended
	}
}
