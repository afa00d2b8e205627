package uverbstest

import (
	"slices"
	"sync"

	"github.com/purerdma/purerdma/ibverbs/internal/uverbs"
)

// Tracer is a kernel that records what goes to another one. It may be used by
// several goroutines.
type Tracer struct {
	uverbs.Kernel
	mu      sync.Mutex
	records []Record
}

// Ioctl implements uverbs.Kernel.
func (t *Tracer) Ioctl(fd int, frame []byte) error {
	c, err := Decode(frame, addressOf(frame))
	if err != nil {
		return err
	}
	r := RecordOf(c)
	r.Err = t.Kernel.Ioctl(fd, frame)
	t.mu.Lock()
	defer t.mu.Unlock()
	t.records = append(t.records, r)
	return r.Err
}

// Records is what was recorded so far.
func (t *Tracer) Records() []Record {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Clone(t.records)
}
