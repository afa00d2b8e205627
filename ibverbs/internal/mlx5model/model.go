package mlx5model

import (
	"fmt"
	"sync"
)

// Config is what kind of adapter a Model is. The zero value is one with an InfiniBand
// port.
type Config struct {
	// Log is told what a program did that an adapter or its kernel would not have
	// forgiven, and which commands the model lacks. It is called under the model's
	// lock, so it must not call the model. Nil is nobody.
	Log func(string)
}

// Model is one adapter. Its methods may be called by several goroutines.
type Model struct {
	config Config

	mu       sync.Mutex
	contexts map[*context]struct{}
}

// New makes an adapter that nobody has opened.
func New(c Config) *Model {
	return &Model{config: c, contexts: map[*context]struct{}{}}
}

// Left is how many files are open.
func (m *Model) Left() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.contexts)
}

func (m *Model) logf(format string, args ...any) {
	if m.config.Log != nil {
		m.config.Log(fmt.Sprintf(format, args...))
	}
}

// warn is logf for those who do not hold the lock.
func (m *Model) warn(format string, args ...any) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.logf(format, args...)
}
