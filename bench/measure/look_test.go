package measure

import (
	"context"
	"errors"
	"testing"
)

// A loop that finds nothing ends with its context, at the first yield after that and not before.
func TestLooker(t *testing.T) {
	reason := errors.New("enough")
	ctx, cancel := context.WithCancelCause(t.Context())
	l := NewLooker(ctx, 64)
	for range 200 {
		if err := l.Again(); err != nil {
			t.Fatal(err)
		}
	}
	cancel(reason)
	for look := 201; look <= 256; look++ {
		if err := l.Again(); (err != nil) != (look == 256) || err != nil && !errors.Is(err, reason) {
			t.Fatalf("look %d: %v", look, err)
		}
	}
}
