//go:build hw && linux

package nvidia

import (
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
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
		p2ptest.Run(t, p2ptest.Config{Driver: gpu.Driver(driver{}), Device: d.Index, TwoProcesses: mps, Biggest: 256 << 20, Used: nvmlUsed(t, d)})
	}
}

// nvmlUsed asks NVML, by its own program, for the memory that is in use; nil without it.
func nvmlUsed(t *testing.T, d gpu.DeviceInfo) func() (uint64, error) {
	path, err := exec.LookPath("nvidia-smi")
	if err != nil {
		t.Logf("NVML is not asked: %v", err)
		return nil
	}
	return func() (uint64, error) {
		out, err := exec.Command(path, "--id="+d.UUID, "--query-gpu=memory.used", "--format=csv,noheader,nounits").Output()
		if err != nil {
			return 0, fmt.Errorf("%s: %w", path, err)
		}
		mib, err := strconv.ParseUint(strings.TrimSpace(string(out)), 10, 44)
		return mib << 20, err
	}
}
