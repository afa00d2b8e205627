//go:build hw && linux

package nvidia

import (
	"os"
	"testing"

	"github.com/purerdma/purerdma/gpu"
	"github.com/purerdma/purerdma/p2ptransport/p2ptest"
)

// TestHWP2P runs the P2P transport's suite on each GPU. Ranks in two processes on one
// GPU need MPS (CUDA_MPS_PIPE_DIRECTORY), without which their kernels take turns.
func TestHWP2P(t *testing.T) {
	devices, err := driver{}.Devices()
	if err != nil {
		t.Skip(err)
	}
	_, err = os.Stat(os.Getenv("CUDA_MPS_PIPE_DIRECTORY") + "/control")
	mps := os.Getenv("CUDA_MPS_PIPE_DIRECTORY") != "" && err == nil
	for _, d := range devices {
		t.Logf("GPU %d of %d, %s %s; MPS: %v", d.Index, len(devices), d.Name, d.UUID, mps)
		p2ptest.Run(t, p2ptest.Config{Driver: gpu.Driver(driver{}), Device: d.Index, TwoProcesses: mps, Biggest: 256 << 20})
	}
}
