// Package cause says why a context has ended.
package cause

import (
	"context"
	"errors"
	"fmt"

	"github.com/purerdma/purerdma/internal/absent"
)

// Of is [absent.ErrContext] of a nil ctx, nil while ctx has not ended, and then its Err and its Cause in one: errors.Is finds Canceled or
// DeadlineExceeded, whatever cause a caller gave, and that cause too.
func Of(ctx context.Context) error {
	if ctx == nil {
		return absent.ErrContext
	}
	err, why := ctx.Err(), context.Cause(ctx)
	if err == nil || errors.Is(why, err) {
		return why
	}
	return fmt.Errorf("%w: %w", err, why)
}
