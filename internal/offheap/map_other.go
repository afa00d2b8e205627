//go:build !unix

package offheap

import (
	"errors"
	"fmt"
)

var errNoMap = fmt.Errorf("mapping memory on this system: %w", errors.ErrUnsupported)

// Map is not implemented here.
func Map(int, Options) (Span, error) { return Span{}, errNoMap }

// MapFile is not implemented here.
func MapFile(int, int64, int) (Span, error) { return Span{}, errNoMap }

// MapRing is not implemented here.
func MapRing(int, int64, int) (Span, error) { return Span{}, errNoMap }

// Populate is not implemented here.
func (s Span) Populate() error { return errNoMap }
