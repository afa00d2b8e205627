// Package absent is the error of what a caller did not have: a context. What the module does about it is in ARCHITECTURE.md.
package absent

import (
	"fmt"
	"syscall"
)

// ErrContext is the error of a nil context.
var ErrContext = fmt.Errorf("the context is nil; pass context.Background() where nothing is to end the call: %w", syscall.EINVAL)
