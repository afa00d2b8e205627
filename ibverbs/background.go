package ibverbs

import "sync"

// background is what calls that must not wait have left to do. Nothing is begun
// once its device is being closed.
type background struct {
	mu      sync.Mutex
	closing bool
	running sync.WaitGroup
}

func (b *background) run(f func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.closing {
		b.running.Go(f)
	}
}

func (b *background) close() {
	b.mu.Lock()
	b.closing = true
	b.mu.Unlock()
	b.running.Wait()
}
