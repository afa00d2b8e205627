package nettransport

import (
	"context"
	"errors"
	"testing"

	"github.com/purerdma/purerdma/ibverbs/driver/memdriver"
)

// What ends a context is found in the error, and so is the reason that a caller gave.
func TestContextCause(t *testing.T) {
	f := newFabric(t, 1, 1, memdriver.Config{}, nil)
	p := connect(t, f, Config{}, Config{})
	rm, _ := memory(t, &p.recv.Comm, 4096)
	r, ok, err := p.recv.Irecv(Buffer{MR: rm, N: 8})
	if !ok || err != nil {
		t.Fatal(ok, err)
	}
	l, err := transport(t, f.recv, Config{}).Listen(t.Context(), 0)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	reason := errors.New("enough")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(reason)
	_, accept := l.Accept(ctx)
	for _, err := range []error{accept, r.Wait(ctx, nil)} {
		if !errors.Is(err, reason) || !errors.Is(err, context.Canceled) {
			t.Errorf("%v, want Canceled and its cause", err)
		}
	}
}
