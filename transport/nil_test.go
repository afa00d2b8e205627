package transport

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/purerdma/purerdma/socketboot/bootstrap"
)

// What is nil, negative or beyond the ranks is an error that names it, never a fault.
func TestWhatCannotBe(t *testing.T) {
	t.Setenv("NCCL_CONNECT_ROUND_MAX_PEERS", "many")
	if _, err := VariablesFromEnv(nil); err == nil || !strings.Contains(err.Error(), "NCCL_CONNECT_ROUND_MAX_PEERS") {
		t.Errorf("the process's environment: %v", err)
	}
	job := bootstrap.InMemory(1, nil)[0]
	defer job.Close()
	_, err := New(t.Context(), Config{Job: job, Variables: defaultVariables(), Transports: []Transport{nil}, Log: quiet})
	if err == nil || !strings.Contains(err.Error(), "Config.Transports[0] is nil") {
		t.Errorf("a nil transport: %v", err)
	}

	w := newWorld(t, 2, nil, nil)
	defer w.close(t)
	c := w.comms[0]
	if c.Peer(-1) != nil || c.Peer(2) != nil || c.Peer(1) == nil {
		t.Error("Peer tells of ranks that are not there, or not of those that are")
	}
	for _, channels := range []int{-1, 5, 1000} {
		for rank, err := range w.connect(t.Context(), mesh(2, channels)) {
			if err == nil || !strings.Contains(err.Error(), "want channels below 4") {
				t.Errorf("rank %d with %d channels: %v", rank, channels, err)
			}
		}
	}
	if err := c.SendMemory(t.Context(), 1, nil); err == nil {
		t.Error("nothing was sent")
	}
	if _, err := c.RecvMemory(t.Context(), 1, nil); err == nil {
		t.Error("nothing was received into")
	}
	if err := c.Send(t.Context(), 7, nil); err == nil || strings.Contains(err.Error(), " at ") || !strings.Contains(err.Error(), "rank 7:") {
		t.Errorf("a rank that is not there: %v", err)
	}

	e := NewEngine()
	defer e.Close()
	ends := make(chan error, 1)
	e.Start(nil, Op{}, func(err error) { ends <- err })
	if err := <-ends; !errors.Is(err, errNoProxy) {
		t.Errorf("a nil proxy: %v", err)
	}
	e.Start(nil, Op{}, nil)
	e.Start(&counter{fail: io.EOF}, Op{Steps: 1}, nil)
}

// A Connect whose context ends while another rank has not come says what it has waited for.
func TestConnectSaysWhatItWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 3, nil, nil)
		defer w.close(t)
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 2)
		for _, c := range w.comms[:2] {
			go func() { ended <- c.Connect(ctx, Ring(c.Rank(), 3, 1)) }()
		}
		synctest.Wait()
		cancel()
		for range 2 {
			if err := <-ended; !errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), "waiting for all ranks to call Connect") {
				t.Error(err)
			}
		}
	})
}
