package tune

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"

	"github.com/purerdma/purerdma/bench/control"
	"github.com/purerdma/purerdma/internal/cause"
)

// maxStrangers is how many connections may be in their greeting at once.
const maxStrangers = 32

// ServeOne waits at l for the first peer that greets as it should, serves it and returns. Others are told to dropped with the
// reason, from any goroutine, and harm nothing: each greets in a goroutine of its own. It closes l.
func ServeOne(ctx context.Context, l net.Listener, c EndConfig, dropped func(peer string, why error)) (Session, error) {
	type guest struct {
		ctl *control.Conn
		nc  net.Conn
	}
	guests := make(chan guest)
	seats := make(chan struct{}, maxStrangers)
	var failed error
	var wait sync.WaitGroup
	waiting, enough := context.WithCancel(ctx)
	stop := context.AfterFunc(waiting, func() { _ = l.Close() })
	defer stop()
	wait.Go(func() {
		defer enough()
		for {
			nc, err := l.Accept()
			if err != nil {
				failed = err
				return
			}
			select {
			case seats <- struct{}{}:
			default:
				dropped(peerName(nc), fmt.Errorf("%d others are in their greeting", maxStrangers))
				_ = nc.Close()
				continue
			}
			wait.Go(func() {
				defer func() { <-seats }()
				ctl, err := greet(waiting, nc)
				if err != nil {
					if waiting.Err() == nil {
						dropped(peerName(nc), err)
					}
					return
				}
				select {
				case guests <- guest{ctl, nc}:
				case <-waiting.Done():
					ctl.Fail(errors.New("another peer came first"))
					_ = ctl.Close()
				}
			})
		}
	})
	var g guest
	select {
	case g = <-guests:
	case <-waiting.Done():
	}
	enough()
	wait.Wait()
	switch {
	case g.ctl != nil:
		return serve(ctx, g.ctl, g.nc, c)
	case ctx.Err() != nil:
		return Session{}, cause.Of(ctx)
	}
	return Session{}, failed
}
