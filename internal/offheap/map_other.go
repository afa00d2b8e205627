//go:build !unix

package offheap

import (
	"errors"
	"fmt"
)

var errNoMap = fmt.Errorf("mapping memory on this system: %w", errors.ErrUnsupported)

// Map fails: memory is mapped on Unix systems only.
func Map(int, Options) (Span, error) { return Span{}, errNoMap }

// MapFile fails: memory is mapped on Unix systems only.
func MapFile(int, int64, int) (Span, error) { return Span{}, errNoMap }

// MapRing fails: memory is mapped on Unix systems only.
func MapRing(int, int64, int) (Span, error) { return Span{}, errNoMap }

// Populate fails: memory is mapped on Unix systems only.
func (s Span) Populate() error { return errNoMap }
