package nettransport

import (
	"os"
	"testing"

	"github.com/purerdma/purerdma/internal/leaktest"
)

func TestMain(m *testing.M) {
	if role := os.Getenv(childEnv); role != "" {
		os.Exit(runChild(role))
	}
	leaktest.Main(m)
}

// childEnv tells a process that is a copy of the test binary which end it is.
const childEnv = "NETTRANSPORT_TEST_CHILD"

// runChild is the other process of tests with two of them.
var runChild = func(role string) int { panic("no such child: " + role) }
