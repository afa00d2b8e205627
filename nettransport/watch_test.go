package nettransport

import (
	"context"
	"errors"
	"testing"

	"github.com/purerdma/purerdma/ibverbs"
	"github.com/purerdma/purerdma/ibverbs/driver/memdriver"
)

func TestRecvWithoutRoom(t *testing.T) {
	f := newFabric(t, 1, 1, memdriver.Config{}, nil)
	p := connect(t, f, Config{}, Config{})
	rm, _ := memory(t, &p.recv.Comm, 64)
	for range MaxRequests {
		if _, err := p.recv.Recv(t.Context(), rm.Buffer(0, 8, 0)); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := p.recv.Recv(t.Context(), rm.Buffer(0, 8, 0)); !errors.Is(err, ibverbs.ErrQueueFull) {
		t.Errorf("one more than fit: %v", err)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := p.recv.Recv(ended, rm.Buffer(0, 8, 0)); !errors.Is(err, context.Canceled) {
		t.Errorf("after the context: %v", err)
	}
}

// A service reads Stats and Err while the connection is at work; the race detector judges.
func TestStatsAndErrFromOutside(t *testing.T) {
	f := newFabric(t, 1, 1, memdriver.Config{}, nil)
	p := connect(t, f, Config{}, Config{})
	stop, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for {
			_, _ = p.recv.Stats(), p.send.Stats()
			_, _ = p.recv.Err(), p.send.Err()
			select {
			case <-stop:
				return
			default:
			}
		}
	}()
	for range 20 {
		p.transfer([]int{8}, 1)
	}
	if s := p.recv.Stats(); s.Messages != 20 || s.Bytes != 160 {
		t.Errorf("%+v", s)
	}
	if err := p.recv.Close(); err != nil {
		t.Error(err)
	}
	close(stop)
	<-done
	if err := p.recv.Err(); !errors.Is(err, ErrClosed) {
		t.Errorf("Err of a closed connection: %v", err)
	}
}
