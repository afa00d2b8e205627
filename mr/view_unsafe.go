package mr

import (
	"unsafe"

	"github.com/purerdma/purerdma/ibverbs"
)

// View is the T that starts at byte off of b. T has a fixed layout: no
// pointers, which the collector would not see, and no bool, which a peer could
// fill with neither true nor false. off must suit T's alignment. The memory is
// shared with whoever wrote its key down: copy, then check, then use. A View
// keeps nothing mapped.
func View[T any](b *Buffer, off int) (*T, error) {
	v, err := ViewSlice[T](b, off, 1)
	if err != nil {
		return nil, err
	}
	return unsafe.SliceData(v), nil
}

// ViewSlice is n values of T from byte off on, under the rules of View.
func ViewSlice[T any](b *Buffer, off, n int) ([]T, error) {
	s := b.Span()
	if err := viewable[T](s, off, n); err != nil {
		return nil, &ibverbs.Error{Op: "view buffer", Object: bytesOf(s.Len()), Err: err}
	}
	return unsafe.Slice((*T)(unsafe.Add(s.Pointer(), off)), n), nil
}
