package qp

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"syscall"
	"time"

	"github.com/purerdma/purerdma/internal/cause"
)

// What an end says when it has the peer's Info.
const (
	saysFailed    = 0
	saysConnected = 1
)

// wordTime bounds how long an end that has failed tries to say so.
const wordTime = time.Second

var (
	errNoConn     = fmt.Errorf("the net.Conn is nil: %w", syscall.EINVAL)
	errPeerFailed = errors.New("the peer could not connect its queue pair; its error says why")
)

const hintOver = "both ends have to call ConnectOver, with nothing said before"

// ConnectOver connects q with the queue pair at the other end of c, where
// ConnectOver is called as well. When it returns nil the peer is in RTS too, so
// that either may send.
//
// The ends tell each other their Info, in the InfoSize bytes of AppendBinary, and
// then in one byte whether they have connected: 1, or 0. c stays the caller's, with
// its deadlines removed. When ctx ends, so does the wait for the peer. After an error
// close q and c. Whether the peer is who it should be is c's affair.
func (q *QP) ConnectOver(ctx context.Context, c net.Conn) error {
	if c == nil {
		return q.fail(opOver, errNoConn, "")
	}
	if ctx == nil {
		return q.fail(opOver, cause.Of(ctx), "")
	}
	defer interruptible(ctx, c)()
	mine, _ := q.Info().AppendBinary(nil)
	theirs := make([]byte, InfoSize)
	if err := swap(c, mine, theirs); err != nil {
		return q.failOver(ctx, c, fmt.Errorf("exchange of Info: %w", err), hintOver)
	}
	var peer Info
	if err := peer.UnmarshalBinary(theirs); err != nil {
		sayFailed(c)
		return q.failOver(ctx, c, err, hintOver)
	}
	if err := q.ConnectContext(ctx, peer); err != nil {
		sayFailed(c)
		return err
	}
	var word [1]byte
	switch err := swap(c, []byte{saysConnected}, word[:]); {
	case err != nil:
		return q.failOver(ctx, c, fmt.Errorf("the peer's word that it has connected: %w", err), "")
	case word[0] != saysConnected:
		return q.failOver(ctx, c, errPeerFailed, "")
	}
	return nil
}

const opOver = "connect QP over a connection"

func (q *QP) failOver(ctx context.Context, c net.Conn, err error, hint string) error {
	if ctx.Err() != nil {
		err, hint = cause.Of(ctx), ""
	}
	e := q.fail(opOver, err, hint)
	if a := c.RemoteAddr(); a != nil {
		e.Peer = a.String()
	}
	return e
}

// swap writes and reads at the same time: a connection may hold no byte that nobody
// reads.
func swap(c net.Conn, out, in []byte) error {
	sent := make(chan error, 1)
	go func() {
		_, err := c.Write(out)
		sent <- err
	}()
	_, err := io.ReadFull(c, in)
	if err == nil {
		return <-sent
	}
	_ = c.SetWriteDeadline(past) // who has not spoken may not read either
	if e := <-sent; !errors.Is(e, os.ErrDeadlineExceeded) {
		return errors.Join(err, e)
	}
	return err
}

func sayFailed(c net.Conn) {
	_ = c.SetWriteDeadline(time.Now().Add(wordTime))
	_, _ = c.Write([]byte{saysFailed})
}

var past = time.Unix(1, 0)

// interruptible makes reads and writes of c fail when ctx ends, until the function
// that it returns has returned, which leaves no deadline.
func interruptible(ctx context.Context, c net.Conn) (end func()) {
	fired := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(fired)
		_ = c.SetDeadline(past)
	})
	return func() {
		if !stop() {
			<-fired
		}
		_ = c.SetDeadline(time.Time{})
	}
}
