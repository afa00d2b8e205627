package tune

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/purerdma/purerdma/bench/control"
	"github.com/purerdma/purerdma/bench/plan"
	"github.com/purerdma/purerdma/nettransport"
)

// patience is how long an end waits for an answer beside the time that messages take: opening a connection may sit a few seconds
// in the kernel.
const patience = time.Minute

// Session is what the serving end knows of a session.
type Session struct {
	Peer        string // address
	This, Other Description
	Connections int
	Runs        int
	Messages    int64 // that arrived, and were checked or sampled
	Bytes       int64
}

// Serve is the end that does what the other one says, over nc, which it closes. It returns when the other end has finished, fails or
// goes away, or when ctx ends. Whatever happens, the End of the session is closed.
func Serve(ctx context.Context, nc net.Conn, c EndConfig) (Session, error) {
	ctl, err := greet(ctx, nc)
	if err != nil {
		return Session{Peer: peerName(nc)}, err
	}
	return serve(ctx, ctl, nc, c)
}

func serve(ctx context.Context, ctl *control.Conn, nc net.Conn, c EndConfig) (s Session, err error) {
	s.Peer = ctl.Peer()
	defer func() { err = errors.Join(err, ctl.Close()) }()
	ctx, release := both(ctx, ctl)
	defer release()
	srv := &server{ctl: ctl, nc: nc, s: &s}
	err = srv.session(ctx, c)
	failed := err != nil
	if failed {
		err = tell(ctx, ctl, err)
	}
	if srv.end != nil {
		err = errors.Join(err, srv.end.Close())
	}
	switch {
	case failed:
		return s, err
	case err != nil:
		ctl.Fail(err)
		return s, err
	}
	return s, ctl.Send(sayEnded, nil)
}

// tell completes the error that ends a session and tells it to the other end, before connections close: what they feel of that is
// not the reason. What the other end says of a failure is more than what this one felt, so that comes first.
func tell(ctx context.Context, ctl *control.Conn, err error) error {
	if errors.Is(err, nettransport.ErrPeerGone) {
		select { // the reason comes by another way and may be a little late
		case <-ctl.Context().Done():
		case <-time.After(time.Second):
		}
	}
	cause := context.Cause(ctl.Context())
	if cause == nil {
		cause = context.Cause(ctx)
	}
	if cause != nil && !errors.Is(err, cause) {
		err = fmt.Errorf("%w (%w)", cause, err)
	}
	ctl.Fail(err)
	return err
}

func peerName(nc net.Conn) string {
	if a, ok := addrOf(nc.RemoteAddr()); ok {
		return a.String()
	}
	return "the other process"
}

func greet(ctx context.Context, nc net.Conn) (*control.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	return control.New(ctx, nc, peerName(nc), hello())
}

// both ends with ctx or with the control connection, whichever is first; its cause says why.
func both(ctx context.Context, ctl *control.Conn) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(ctl.Context(), func() { cancel(context.Cause(ctl.Context())) })
	return ctx, func() { stop(); cancel(nil) }
}

type server struct {
	ctl *control.Conn
	nc  net.Conn
	end *End
	s   *Session

	b        begin
	totalQPs int
}

func (s *server) session(ctx context.Context, c EndConfig) error {
	if err := s.ctl.Recv(ctx, askBegin, &s.b); err != nil {
		return err
	}
	if err := s.b.check(); err != nil {
		return err
	}
	var err error
	if s.end, err = OpenEnd(c); err != nil {
		return err
	}
	s.s.This, s.s.Other = s.end.Description(), s.b.End
	if err := agree(s.s.This, s.s.Other); err != nil {
		return err
	}
	if err := s.end.prepare(s.b.MaxSize, s.b.Depth, s.b.Attributes, localOf(s.nc)); err != nil {
		return err
	}
	if err := s.ctl.Send(sayBegun, begun{End: s.s.This}); err != nil {
		return err
	}
	for {
		ask, body, err := s.ctl.Next(ctx)
		if err != nil {
			return err
		}
		switch ask {
		case askOpen:
			err = s.open(ctx, body)
		case askRun:
			err = s.run(ctx, body)
		case askEnd:
			return nil
		default:
			err = fmt.Errorf("%s asks for %.40q: %w", s.ctl.Peer(), ask, control.ErrProtocol)
		}
		if err != nil {
			return err
		}
	}
}

func (s *server) open(ctx context.Context, body control.Body) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	var o open
	if err := body.Decode(&o); err != nil {
		return err
	}
	h, err := handleFrom(o.Handle, s.nc)
	if err != nil {
		return err
	}
	s.totalQPs += 2 * o.QPs
	if o.QPs < 1 || o.QPs > plan.MaxQPs || s.totalQPs > maxTotalQPs || len(s.end.conns) >= maxConnections {
		return fmt.Errorf("connection %d of %d QPs, %d in all: %w", len(s.end.conns)+1, o.QPs, s.totalQPs, control.ErrProtocol)
	}
	conn, ours, err := s.end.listen(ctx, plan.Setting{QPs: o.QPs, Split: o.Split})
	if err != nil {
		return err
	}
	if err := s.ctl.Send(sayOpening, opening{Handle: ours[:]}); err != nil {
		return err
	}
	if err := s.end.join(ctx, conn, h); err != nil {
		return err
	}
	if err := s.ctl.Recv(ctx, sayOpened, nil); err != nil {
		return err
	}
	s.s.Connections++
	return s.ctl.Send(sayOpened, nil)
}

func (s *server) run(ctx context.Context, body control.Body) error {
	var r run
	if err := body.Decode(&r); err != nil {
		return err
	}
	if err := r.check(len(s.end.conns), s.b.MaxSize); err != nil {
		return err
	}
	if err := s.answer(ctx, r); err != nil {
		return fmt.Errorf("%s of %d messages of %d bytes over %s: %w", r.Kind, r.Count, r.Size, name(s.end.conns[r.Connection].setting), err)
	}
	s.s.Runs++
	s.s.Messages += int64(r.Count)
	s.s.Bytes += int64(r.Count) * int64(r.Size)
	return s.ctl.Send(sayRan, nil)
}

func (s *server) answer(ctx context.Context, r run) error {
	if r.Kind == pingPong {
		p := s.end.pingPong(r)
		if err := p.Offer(ctx); err != nil {
			return err
		}
		if err := s.ctl.Send(sayReady, nil); err != nil {
			return err
		}
		return p.Follow(ctx)
	}
	if r.Kind == stream {
		s.end.wipe(r)
	}
	in := s.end.receiving(r)
	if err := in.Fill(); err != nil {
		return err
	}
	if err := s.ctl.Send(sayReady, nil); err != nil {
		return err
	}
	if _, err := in.Run(ctx); err != nil {
		return err
	}
	if r.Kind == stream {
		return s.end.sample(r)
	}
	return nil
}
