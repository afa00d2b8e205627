package ibverbs_test

import (
	"bytes"
	"log/slog"
	"runtime"
	"testing"

	"github.com/purerdma/purerdma/ibverbs"
	"github.com/purerdma/purerdma/ibverbs/driver/memdriver"
)

// A Context that only waits for its deferred Close has not been dropped, and
// nothing is said of it.
func TestDeferredCloseIsNoDrop(t *testing.T) {
	var log bytes.Buffer
	fabric := memdriver.New(memdriver.Config{})
	func() {
		dev := get(ibverbs.Open("mem0", ibverbs.WithDrivers(fabric), ibverbs.WithLogger(slog.New(slog.NewTextHandler(&log, nil)))))(t)
		defer dev.Close()
		collect(t)
	}()
	if log.Len() > 0 {
		t.Errorf("the log says %q", &log)
	}
	if contexts, _ := fabric.Device("mem0").Leaks(); contexts != 0 {
		t.Errorf("%d contexts are open", contexts)
	}
}

// collect collects garbage until the cleanups of what is garbage now have run.
func collect(t *testing.T) {
	t.Helper()
	done := make(chan struct{})
	runtime.AddCleanup(new([64]byte), func(c chan struct{}) { close(c) }, done)
	for ctx := deadline(t); ; {
		runtime.GC()
		select {
		case <-done:
			return
		case <-ctx.Done():
			t.Fatal("no cleanup has run")
		default:
			runtime.Gosched()
		}
	}
}
