// Package cause is the module's internal/cause for socketboot, which imports nothing of the module.
package cause

import (
	"context"
	"errors"
	"fmt"
	"syscall"
)

// ErrNoContext says that a context is nil.
var ErrNoContext = fmt.Errorf("the context is nil; pass context.Background() where nothing is to end the call: %w", syscall.EINVAL)

// Of is [ErrNoContext] of a nil ctx, nil while ctx has not ended, and then its Err and its Cause in one.
func Of(ctx context.Context) error {
	if ctx == nil {
		return ErrNoContext
	}
	err, why := ctx.Err(), context.Cause(ctx)
	if err == nil || errors.Is(why, err) {
		return why
	}
	return fmt.Errorf("%w: %w", err, why)
}
