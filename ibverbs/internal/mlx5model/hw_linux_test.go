package mlx5model

import (
	"os"
	"os/exec"
	"testing"
)

// TestHardwareTests runs tests for adapters, those with the build tag hw, on the model as
// they are: connections with attributes of chance, and messages between two processes of
// which one is killed. All packages take more than a minute, so they are run on demand.
func TestHardwareTests(t *testing.T) {
	if _, err := exec.LookPath("go"); err != nil {
		t.Skipf("builds tests: %v", err)
	}
	newSupervised(t, polled)
	runs := [][]string{{"-ethernet", "./qp"}, {"./nettransport", "-run=^TestKilled"}}
	switch {
	case os.Getenv("PURERDMA_MLX5MODEL_HW") != "":
		runs = [][]string{{}, {"-ethernet"}, {"-trap", "./qp"}}
	case testing.Short():
		runs = runs[:1]
	}
	for _, args := range runs {
		if out, err := exec.CommandContext(t.Context(), "./hw", args...).CombinedOutput(); err != nil {
			t.Errorf("hw %q: %v\n%s", args, err, out)
		}
	}
}
