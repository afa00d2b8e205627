package cause

import (
	"context"
	"errors"
	"fmt"
	"syscall"
	"testing"
	"time"
)

func TestOf(t *testing.T) {
	reason := errors.New("enough")
	ended := func(why error) context.Context {
		ctx, cancel := context.WithCancelCause(context.Background())
		cancel(why)
		return ctx
	}
	late, cancel := context.WithDeadlineCause(context.Background(), time.Unix(0, 0), reason)
	defer cancel()
	wrapped := fmt.Errorf("the user: %w", context.Canceled)
	for name, tt := range map[string]struct {
		ctx  context.Context
		want []error
		text string
	}{
		"cancelled":             {ended(nil), []error{context.Canceled}, "context canceled"},
		"with a cause":          {ended(reason), []error{context.Canceled, reason}, "context canceled: enough"},
		"late, with a cause":    {late, []error{context.DeadlineExceeded, reason}, "context deadline exceeded: enough"},
		"a cause that tells it": {ended(wrapped), []error{context.Canceled, wrapped}, "the user: context canceled"},
	} {
		t.Run(name, func(t *testing.T) {
			got := Of(tt.ctx)
			for _, want := range tt.want {
				if !errors.Is(got, want) {
					t.Errorf("%v is not %v", got, want)
				}
			}
			if got == nil || got.Error() != tt.text {
				t.Errorf("%v, want %s", got, tt.text)
			}
		})
	}
	var none context.Context
	if err := Of(none); !errors.Is(err, syscall.EINVAL) {
		t.Errorf("of none: %v", err)
	}
	if err := Of(context.Background()); err != nil {
		t.Errorf("of a context that goes on: %v", err)
	}
}
