//go:build hw && linux

package kernels

import (
	"errors"
	"testing"

	"github.com/purerdma/purerdma/gpu"
	_ "github.com/purerdma/purerdma/gpu/nvidia"
)

// openGPU is a hold on the first GPU of the machine.
func openGPU(t testing.TB) gpu.Context {
	for _, d := range gpu.Drivers() {
		devices, err := d.Devices()
		if errors.Is(err, gpu.ErrNoDriver) || errors.Is(err, gpu.ErrNoDevice) || len(devices) == 0 {
			continue
		}
		must(t, err)
		t.Logf("GPU 0 of %d: %s %s", len(devices), devices[0].Name, devices[0].UUID)
		c := get(d.Open(0))(t)
		t.Cleanup(func() { must(t, c.Close()) })
		return c
	}
	t.Skip("no GPU")
	return nil
}

func TestHWKernels(t *testing.T) { suite(t, openGPU(t), 10<<20+13) }

// BenchmarkHWRing is the ring of SIMPLE in one process: both ends on one GPU, so
// that each byte is moved twice.
func BenchmarkHWRing(b *testing.B) {
	c := openGPU(b)
	const total, step = 256 << 20, 512 << 10
	src, dst := get(c.Alloc(total))(b), get(c.Alloc(total))(b)
	b.Run("copy", func(b *testing.B) {
		s := get(c.NewStream())(b)
		b.SetBytes(total)
		for b.Loop() {
			must(b, c.Copy(dst, src, total, s))
			must(b, c.Synchronize(s))
		}
	})
	for _, channels := range []int{1, 4, 16, 32, 64} {
		b.Run(name(channels), func(b *testing.B) {
			l := newLink(b, c, channels, step)
			b.SetBytes(total)
			for b.Loop() {
				out, in := l.channels(channels, src, total, step), l.channels(channels, dst, total, step)
				must(b, l.set.SendSimple(l.send, l.abort, out))
				must(b, l.set.RecvSimple(l.recv, l.abort, in))
				must(b, c.Synchronize(l.recv))
				must(b, c.Synchronize(l.send))
				l.moved(out, step)
			}
			must(b, l.set.Close())
			must(b, c.Free(l.buffer))
		})
	}
}

// BenchmarkHWRounds is half a round trip of 8 bytes by LL in one process.
func BenchmarkHWRounds(b *testing.B) {
	c := openGPU(b)
	l := newLink(b, c, 1, 4096)
	const rounds = 20000
	for b.Loop() {
		l.clear(b, 0)
		must(b, l.set.Rounds(l.send, l.abort, l.buffer, l.buffer+512, rounds, true))
		must(b, l.set.Rounds(l.recv, l.abort, l.buffer+512, l.buffer, rounds, false))
		must(b, c.Synchronize(l.send))
		must(b, c.Synchronize(l.recv))
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/rounds/2, "ns/half-round")
	must(b, l.set.Close())
}

func name(channels int) string {
	return map[int]string{1: "1 channel", 4: "4 channels", 16: "16 channels", 32: "32 channels", 64: "64 channels"}[channels]
}
