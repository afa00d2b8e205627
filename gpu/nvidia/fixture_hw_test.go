//go:build hw && linux

package nvidia

import (
	"bytes"
	"errors"
	"flag"
	"math/rand/v2"
	"os"
	"testing"

	"github.com/purerdma/purerdma/gpu"
)

var seed = flag.Uint64("gpu.seed", 0, "for the choice of a device and for the data; 0 is random")

// open gives a hold on one of the machine's GPUs, chosen by chance and printed.
func open(t testing.TB) gpu.Context {
	t.Helper()
	devices, err := driver{}.Devices()
	if errors.Is(err, gpu.ErrNoDriver) || errors.Is(err, gpu.ErrNoDevice) {
		t.Skip(err)
	}
	must(t, err)
	if len(devices) == 0 {
		t.Skip("the driver shows no GPU to this process")
	}
	s := *seed
	if s == 0 {
		s = rand.Uint64()
	}
	d := devices[rand.New(rand.NewPCG(s, 0)).IntN(len(devices))]
	t.Logf("GPU %d of %d, %s %s at %v (-gpu.seed %d)", d.Index, len(devices), d.Name, d.UUID, d.PCI, s)
	c := get(driver{}.Open(d.Index))(t)
	t.Cleanup(func() { must(t, c.Close()) })
	return c
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func get[T any](v T, err error) func(testing.TB) T {
	return func(t testing.TB) T {
		t.Helper()
		must(t, err)
		return v
	}
}

// pattern is bytes that no other pattern shares.
func pattern(n int, of byte) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(i*7+i>>8) ^ of
	}
	return b
}

func holds(t testing.TB, c gpu.Context, p gpu.Ptr, want []byte) {
	t.Helper()
	got := make([]byte, len(want))
	must(t, c.ReadFrom(got, p))
	if !bytes.Equal(got, want) {
		t.Errorf("%d bytes at %#x differ", len(want), uint64(p))
	}
}

// descriptors is how many are open.
func descriptors(t testing.TB) int {
	t.Helper()
	return len(get(os.ReadDir("/proc/self/fd"))(t))
}
