package socketboot

import (
	"context"
	"errors"
	"fmt"
)

// causeOf is why ctx has ended, its Err and its Cause in one. Package internal/cause has the same for the rest of the module, of
// which this package imports nothing.
func causeOf(ctx context.Context) error {
	err, why := ctx.Err(), context.Cause(ctx)
	if err == nil || errors.Is(why, err) {
		return why
	}
	return fmt.Errorf("%w: %w", err, why)
}
