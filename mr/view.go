package mr

import (
	"errors"
	"fmt"
	"reflect"

	"github.com/purerdma/purerdma/ibverbs"
	"github.com/purerdma/purerdma/internal/offheap"
)

var errView = errors.New("not a view")

// viewable is nil if n values of T lie within s from byte off on.
func viewable[T any](s offheap.Span, off, n int) error {
	t := reflect.TypeFor[T]()
	if s.Len() == 0 {
		return ibverbs.ErrClosed
	}
	if what := foreignTo(t); what != "" {
		return fmt.Errorf("%w: %v holds %s", errView, t, what)
	}
	size := int(t.Size())
	switch {
	case size == 0:
		return fmt.Errorf("%w: %v has no bytes", errView, t)
	case off < 0 || n < 1 || off > s.Len() || n > (s.Len()-off)/size:
		return fmt.Errorf("%w: %d of %v, %d bytes each, from byte %d on are outside", errView, n, t, size, off)
	case (s.Addr()+uint64(off))%uint64(t.Align()) != 0:
		return fmt.Errorf("%w: byte %d is not aligned to %d for %v", errView, off, t.Align(), t)
	}
	return nil
}

// foreignTo names the first thing in t that memory shared with a device or a
// peer cannot hold, "" if there is none.
func foreignTo(t reflect.Type) string {
	switch t.Kind() {
	case reflect.Bool:
		return "a bool, which a peer could fill with neither true nor false; use a uint8"
	case reflect.Array:
		return foreignTo(t.Elem())
	case reflect.Struct:
		for f := range t.Fields() {
			if what := foreignTo(f.Type); what != "" {
				return what
			}
		}
		return ""
	case reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64, reflect.Int,
		reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64, reflect.Uint, reflect.Uintptr,
		reflect.Float32, reflect.Float64, reflect.Complex64, reflect.Complex128:
		return ""
	}
	return "a pointer (" + t.String() + "), which the collector would not see"
}
