//go:build !linux

package doctor

import (
	"errors"
	"os"

	"github.com/purerdma/purerdma/cmd/purerdma/internal/inventory"
)

// Here is this machine. The kernel's verbs are Linux's alone.
func Here() *World {
	w := &World{Root: os.DirFS("/"), CanUse: func(string) error { return errors.ErrUnsupported }}
	w.Devices, w.ListError = inventory.Take(nil)
	return w
}
