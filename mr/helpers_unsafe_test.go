//go:build unix

package mr

import (
	"testing"
	"unsafe"
)

// foreign adopts memory that is mapped by another buffer.
func foreign(t testing.TB, release func() error) *Buffer {
	t.Helper()
	under := alloc(t, 4096)
	b, err := Foreign(unsafe.Pointer(unsafe.SliceData(under.Bytes())), 4096, release)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// foreignNil is Foreign of no memory.
func foreignNil(n int) (*Buffer, error) { return Foreign(unsafe.Pointer(nil), n, nil) }
