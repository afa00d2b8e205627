package softroce

import (
	"os"
	"testing"

	"go.uber.org/goleak"
)

// ChildEnv tells a process that is a copy of the test binary what to do, RunChild
// does it.
const ChildEnv = "SOFTROCE_TEST_CHILD"

// RunChild is set by the external tests.
var RunChild func(job string) int

func TestMain(m *testing.M) {
	if job := os.Getenv(ChildEnv); job != "" {
		os.Exit(RunChild(job))
	}
	goleak.VerifyTestMain(m)
}
