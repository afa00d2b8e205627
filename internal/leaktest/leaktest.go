// Package leaktest fails the tests of a package that leave goroutines or file
// descriptors behind.
package leaktest

import (
	"fmt"
	"os"
	"slices"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// Main runs the tests of a package, then what is to be done after them, and exits. It
// is called from TestMain.
func Main(m *testing.M, after ...func()) {
	warmUp()
	before := descriptors()
	code := m.Run()
	for _, f := range after {
		f()
	}
	if code == 0 {
		if err := goleak.Find(); err != nil {
			fmt.Fprintln(os.Stderr, "goroutines were left:", err)
			code = 1
		}
		if left := leftSince(before); len(left) != 0 {
			fmt.Fprintln(os.Stderr, "descriptors were left:", left)
			code = 1
		}
	}
	os.Exit(code)
}

// warmUp makes the descriptors that the runtime keeps once it has polled.
func warmUp() {
	if r, w, err := os.Pipe(); err == nil {
		_, _ = r.Close(), w.Close()
	}
}

// leftSince waits for descriptors that a closing goroutine still holds.
func leftSince(before []string) (left []string) {
	for range 50 {
		left = slices.DeleteFunc(descriptors(), func(d string) bool { return slices.Contains(before, d) })
		if len(left) == 0 {
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	return left
}

// descriptors is the open descriptors with what they refer to; nil where there
// is no /proc. Descriptors of the test framework (coverage, fuzzing) are opened
// before.
func descriptors() (ds []string) {
	const dir = "/proc/self/fd"
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil
	}
	for _, e := range entries {
		target, err := os.Readlink(dir + "/" + e.Name())
		if err != nil { // that of ReadDir itself
			continue
		}
		ds = append(ds, e.Name()+" → "+target)
	}
	return ds
}
