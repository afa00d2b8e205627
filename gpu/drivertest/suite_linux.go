// Package drivertest is what every GPU driver must do, as a test. It is for
// Linux, whose descriptors carry memory between processes.
package drivertest

import (
	"bytes"
	"os"
	"testing"

	"github.com/purerdma/purerdma/gpu"
)

// Config is what the suite runs on.
type Config struct {
	Driver gpu.Driver
	Device int
	// Compiles is true if Load compiles its text: then it is tried with text
	// that is wrong. The functions that it must give are ping and pong (PTX).
	Compiles bool
}

type suite struct{ Config }

// Run runs the suite. It starts the test's own program again, to run the test of
// the same name as a second process; nothing before the call may depend on what
// only one process can have.
func Run(t *testing.T, c Config) {
	s := suite{c}
	if what := os.Getenv(childVariable); what != "" {
		s.child(t, what)
		return
	}
	t.Run("Device", s.device)
	t.Run("Alloc", s.alloc)
	t.Run("CloseFrees", s.closeFrees)
	t.Run("Map", s.mapTwo)
	t.Run("DMABuf", s.dmaBuf)
	t.Run("HostMemory", s.hostMemory)
	t.Run("ManyGoroutines", s.manyGoroutines)
	t.Run("KernelsThatWait", s.kernelsThatWait)
	t.Run("LoadRefuses", s.loadRefuses)
	t.Run("StreamWords", s.streamWords)
	t.Run("Sharing", s.sharing)
}

func (s suite) open(t *testing.T) gpu.Context {
	t.Helper()
	c := get(s.Driver.Open(s.Config.Device))(t)
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
