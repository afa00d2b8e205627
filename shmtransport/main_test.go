package shmtransport

import (
	"os"
	"testing"

	"github.com/purerdma/purerdma/internal/leaktest"
)

// Second processes of tests are this binary again, with the name of what they do in a variable.
const childVariable = "PURERDMA_SHM_CHILD"

var children = map[string]func() error{}

func TestMain(m *testing.M) {
	if name := os.Getenv(childVariable); name != "" {
		if err := children[name](); err != nil {
			_, _ = os.Stderr.WriteString(err.Error() + "\n")
			os.Exit(1)
		}
		os.Exit(0)
	}
	leaktest.Main(m)
}
