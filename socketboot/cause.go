package socketboot

import (
	"context"
	"errors"
	"fmt"
	"syscall"
)

var errNoContext = fmt.Errorf("the context is nil; pass context.Background() where nothing is to end the call: %w", syscall.EINVAL)

// causeOf is why ctx has ended, its Err and its Cause in one. Package internal/cause has the same for the rest of the module, of
// which this package imports nothing.
func causeOf(ctx context.Context) error {
	if ctx == nil {
		return errNoContext
	}
	err, why := ctx.Err(), context.Cause(ctx)
	if err == nil || errors.Is(why, err) {
		return why
	}
	return fmt.Errorf("%w: %w", err, why)
}
