package launch

import (
	"testing"

	"github.com/purerdma/purerdma/internal/niltest"
	"github.com/purerdma/purerdma/socketboot/bootstrap"
)

func TestNilContext(t *testing.T) {
	niltest.Refuses(t, map[string]func() error{
		"Meet": func() error {
			_, err := Info{Size: 2, Root: "127.0.0.1:1"}.Meet(niltest.Context, bootstrap.Config{})
			return err
		},
	})
}
