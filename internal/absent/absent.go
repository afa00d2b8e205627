// Package absent is the errors of what a caller did not have: a nil context, or a nil pointer that a call which failed has left. What the
// module does about them is in ARCHITECTURE.md.
package absent

import (
	"fmt"
	"syscall"
)

// ErrContext is the error of a nil context.
var ErrContext = fmt.Errorf("the context is nil; pass context.Background() where nothing is to end the call: %w", syscall.EINVAL)

// Pointer is the error of a method that is called on a nil pointer: what it points to, with its package, and what makes one.
func Pointer(what, maker string) error {
	return fmt.Errorf("the *%s is nil; where %s has failed its error says why: %w", what, maker, syscall.EINVAL)
}
