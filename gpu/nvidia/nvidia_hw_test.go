//go:build hw && linux

package nvidia

import (
	"errors"
	"flag"
	"math/rand/v2"
	"testing"

	"github.com/purerdma/purerdma/gpu"
	"github.com/purerdma/purerdma/gpu/drivertest"
)

var seed = flag.Uint64("gpu.seed", 0, "for the choice of a device; 0 is random")

// TestHW runs the suite on one of the machine's GPUs, chosen by chance.
func TestHW(t *testing.T) {
	devices, err := driver{}.Devices()
	if errors.Is(err, gpu.ErrNoDriver) || errors.Is(err, gpu.ErrNoDevice) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	if len(devices) == 0 {
		t.Skip("the driver shows no GPU to this process")
	}
	s := *seed
	if s == 0 {
		s = rand.Uint64()
	}
	d := devices[rand.New(rand.NewPCG(s, 0)).IntN(len(devices))]
	t.Logf("GPU %d of %d, %s %s at %v (-gpu.seed %d)", d.Index, len(devices), d.Name, d.UUID, d.PCI, s)
	drivertest.Run(t, drivertest.Config{Driver: driver{}, Device: d.Index, Compiles: true})
}
