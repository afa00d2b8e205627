// Package niltest is for tests of what the module does with a nil context: ARCHITECTURE.md has the rule.
package niltest

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"syscall"
	"testing"
)

// Context is a nil one.
var Context context.Context

// Refuses wants each call to return an error that says what is nil.
func Refuses(t *testing.T, calls map[string]func() error) {
	t.Helper()
	for name, call := range calls {
		if err := returned(call); !errors.Is(err, syscall.EINVAL) || !strings.Contains(fmt.Sprint(err), "is nil") {
			t.Errorf("%s: %v, want an error that says what is nil", name, err)
		}
	}
}

// returned is what a call returns, or its panic.
func returned(call func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic: %v", p)
		}
	}()
	return call()
}
