//go:build !race

package spin_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/purerdma/purerdma/internal/spin"
)

// TestSlowHolder lets a waiter run into its sleeps; it gets the lock soon after
// it is free. Virtual time goes on while it waits.
func TestSlowHolder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var m spin.Mutex
		m.Lock()
		start, got := time.Now(), make(chan time.Duration)
		go func() {
			m.Lock()
			got <- time.Since(start)
			m.Unlock()
		}()
		time.Sleep(50 * time.Millisecond)
		m.Unlock()
		if d := <-got; d < 50*time.Millisecond || d > 52*time.Millisecond {
			t.Errorf("the waiter had the lock after %v", d)
		}
	})
}
