package spin_test

import (
	"runtime"
	"sync"
	"testing"

	"github.com/purerdma/purerdma/internal/spin"
)

// TestExclusion counts with several goroutines, some of which are slow or yield
// while they hold the lock. The counter is two words that have to agree.
func TestExclusion(t *testing.T) {
	const workers, rounds = 8, 3000
	var m spin.Mutex
	var a, b int
	var wg sync.WaitGroup
	for w := range workers {
		wg.Go(func() {
			for i := range rounds {
				m.Lock()
				if a != b {
					t.Errorf("%d and %d", a, b)
				}
				a++
				if (i+w)%100 == 0 {
					runtime.Gosched()
				}
				b++
				m.Unlock()
			}
		})
	}
	wg.Wait()
	if a != workers*rounds || b != a {
		t.Errorf("counted %d and %d, want %d", a, b, workers*rounds)
	}
}

func TestTryLock(t *testing.T) {
	var m spin.Mutex
	if !m.TryLock() || m.TryLock() {
		t.Error("it is taken once")
	}
	m.Unlock()
	if !m.TryLock() {
		t.Error("it is not free again")
	}
	m.Unlock()
}

func benchmark(b *testing.B, l sync.Locker) {
	n := 0
	for b.Loop() {
		l.Lock()
		n++
		l.Unlock()
	}
}

func BenchmarkSpin(b *testing.B)  { benchmark(b, new(spin.Mutex)) }
func BenchmarkMutex(b *testing.B) { benchmark(b, new(sync.Mutex)) }

func contended(b *testing.B, l sync.Locker) {
	n := 0
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			l.Lock()
			n++
			l.Unlock()
		}
	})
}

func BenchmarkSpinContended(b *testing.B)  { contended(b, new(spin.Mutex)) }
func BenchmarkMutexContended(b *testing.B) { contended(b, new(sync.Mutex)) }
