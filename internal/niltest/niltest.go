// Package niltest is for tests of what the module does with a nil context and with a nil pointer: ARCHITECTURE.md has the rule.
package niltest

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
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

// Pointers wants each method of each nil pointer that returns an error to return one that says so, but for those of the data path,
// which are named.
func Pointers(t *testing.T, dataPath []string, pointers ...any) {
	t.Helper()
	for _, p := range pointers {
		v := reflect.ValueOf(p)
		for i := range v.NumMethod() {
			m, of := v.Method(i), v.Type().Method(i)
			n := m.Type().NumOut()
			if n == 0 || m.Type().Out(n-1) != reflect.TypeFor[error]() || slices.Contains(dataPath, of.Name) {
				continue
			}
			in := make([]reflect.Value, 0, m.Type().NumIn())
			for j := range m.Type().NumIn() {
				if j < m.Type().NumIn()-1 || !m.Type().IsVariadic() {
					in = append(in, reflect.Zero(m.Type().In(j)))
				}
			}
			Refuses(t, map[string]func() error{fmt.Sprintf("%v.%s", v.Type(), of.Name): func() error {
				err, _ := m.Call(in)[n-1].Interface().(error)
				return err
			}})
		}
	}
}
