package ibverbs_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/purerdma/purerdma/ibverbs"
	"github.com/purerdma/purerdma/ibverbs/driver/memdriver"
	"github.com/purerdma/purerdma/internal/niltest"
)

// waits are all that wait, by what their errors say; done closes what they wait on.
func waits(t *testing.T) map[string]func(context.Context) error {
	dev := get(ibverbs.Open("mem0", ibverbs.WithDrivers(memdriver.New(memdriver.Config{}))))(t)
	t.Cleanup(func() { try(t, dev.Close()) })
	plain, events := get(dev.CreateCQ(1))(t), get(dev.CreateCQ(1, ibverbs.WithEvents()))(t)
	ch := get(dev.CreateCompChannel())(t)
	sub := dev.Subscribe()
	wait := func(cq *ibverbs.CQ) func(context.Context) error {
		return func(ctx context.Context) error {
			_, err := cq.Wait(ctx, make([]ibverbs.WC, 1))
			return err
		}
	}
	return map[string]func(context.Context) error{
		"wait for completion on mem0, CQ #1":                 wait(plain),
		"wait for completion on mem0, CQ #3":                 wait(events),
		"wait for completion event on mem0, completion chan": func(ctx context.Context) error { _, err := ch.Wait(ctx); return err },
		"wait for asynchronous event on mem0":                func(ctx context.Context) error { _, err := sub.Next(ctx); return err },
	}
}

func TestNilContext(t *testing.T) {
	calls := map[string]func() error{}
	for name, wait := range waits(t) {
		calls[name] = func() error { return wait(niltest.Context) }
	}
	niltest.Refuses(t, calls)
	defer func() {
		if p, _ := recover().(string); !strings.Contains(p, "the context is nil") {
			t.Errorf("Watch: %q", p)
		}
	}()
	ibverbs.Watch(niltest.Context)
}

// A wait that its context ends names operation, device and object, and is the context's error and its cause.
func TestEndedWaits(t *testing.T) {
	reason := errors.New("enough")
	for says, wait := range waits(t) {
		t.Run(says, func(t *testing.T) {
			over, cancel := context.WithCancelCause(t.Context())
			cancel(reason)
			soon, end := context.WithTimeoutCause(t.Context(), 5*time.Millisecond, reason)
			defer end()
			for ctx, want := range map[context.Context]error{over: context.Canceled, soon: context.DeadlineExceeded} {
				err := wait(ctx)
				var e *ibverbs.Error
				if !errors.As(err, &e) || !errors.Is(err, want) || !errors.Is(err, reason) || !strings.HasPrefix(err.Error(), says) {
					t.Errorf("%v, want %v", err, want)
				}
			}
		})
	}
}
