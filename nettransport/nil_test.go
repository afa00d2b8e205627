package nettransport

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/purerdma/purerdma/ibverbs"
	"github.com/purerdma/purerdma/internal/niltest"
)

func unconnected() *SendComm {
	c := &SendComm{}
	c.nic = &nic{name: "mem0"}
	c.requests.init(&c.Comm)
	return c
}

func TestNilContext(t *testing.T) {
	c := unconnected()
	r := &RecvComm{}
	r.nic = c.nic
	niltest.Refuses(t, map[string]func() error{
		"Send": func() error { _, err := c.Send(niltest.Context, Buffer{}); return err },
		"Recv": func() error { _, err := r.Recv(niltest.Context); return err },
		"Wait": func() error { return Request{c: &c.Comm}.Wait(niltest.Context, nil) },
	})
	if err := (Request{}).Wait(niltest.Context, nil); !errors.Is(err, ErrStale) {
		t.Errorf("no request: %v", err)
	}
}

// A wait that its context ends names operation, device and peer, and is the context's error and its cause.
func TestEndedWait(t *testing.T) {
	reason := errors.New("enough")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(reason)
	err := unconnected().await(ctx, "send", func() (bool, error) { return false, nil })
	var e *ibverbs.Error
	if !errors.As(err, &e) || !errors.Is(err, context.Canceled) || !errors.Is(err, reason) || !strings.HasPrefix(err.Error(), "send on mem0, peer ") {
		t.Error(err)
	}
}
