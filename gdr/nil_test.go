package gdr

import (
	"testing"

	"github.com/purerdma/purerdma/internal/niltest"
)

func TestNilContext(t *testing.T) {
	niltest.Refuses(t, map[string]func() error{"Flush": func() error { return (&Flusher{}).Flush(niltest.Context, &Memory{}, 0) }})
}
