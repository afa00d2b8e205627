//go:build unix

package mr

import (
	"errors"
	"syscall"
	"testing"
)

func TestForeign(t *testing.T) {
	boom := errors.New("boom")
	released := 0
	b := foreign(t, func() error { released++; return boom })
	if b.PageSize() != 0 || b.Len() != 4096 {
		t.Errorf("%d bytes in pages of %d", b.Len(), b.PageSize())
	}
	s, err := b.Slice(1, 2)
	if err != nil {
		t.Fatal(err)
	}
	if err := b.Close(); err != nil || released != 0 {
		t.Errorf("%v, released %d times", err, released)
	}
	if err := s.Close(); !errors.Is(err, boom) || released != 1 {
		t.Errorf("%v, released %d times", err, released)
	}
	if err := errors.Join(s.Close(), b.Close()); err != nil || released != 1 {
		t.Errorf("%v, released %d times", err, released)
	}
	if err := foreign(t, nil).Close(); err != nil {
		t.Error(err)
	}
	if _, err := foreignNil(1); !errors.Is(err, syscall.EINVAL) {
		t.Error(err)
	}
}
