package bootstrap

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"strings"
	"syscall"
	"testing"

	"github.com/purerdma/purerdma/socketboot/internal/deaf"
)

// A rank, and a root, to which nobody can come since it has no descriptors say so when they give up, and log it once.
func TestNoDescriptorsToAccept(t *testing.T) {
	failed := make(chan struct{}, 1)
	var log strings.Builder
	n := loopback(t, ip4)
	hears := n
	n.Log = slog.New(slog.NewTextHandler(&log, nil))
	n.Listen = func(ctx context.Context, a netip.AddrPort) (net.Listener, error) {
		ln, err := new(net.ListenConfig).Listen(ctx, "tcp", a.String())
		return deaf.Listener{Listener: ln, Failed: failed}, err
	}
	t.Run("rank", func(t *testing.T) {
		r := root(t, RootConfig{Net: hears})
		ctx, cancel := context.WithCancel(soon(t))
		go func() {
			for range 20 {
				<-failed
			}
			cancel()
		}()
		_, err := Join(ctx, Config{ID: r.ID(), Size: 2, Net: n})
		if !errors.Is(err, context.Canceled) || !errors.Is(err, syscall.EMFILE) {
			t.Error(err)
		}
		if got := strings.Count(log.String(), "accept failed"); got != 3 { // of three listeners
			t.Errorf("logged %d times:\n%s", got, log.String())
		}
	})
	t.Run("root", func(t *testing.T) {
		r, err := NewRoot(t.Context(), RootConfig{Net: n})
		if err != nil {
			t.Fatal(err)
		}
		for range 2 { // the second comes after the first was noted
			<-failed
		}
		if err := r.Close(); err != nil {
			t.Error(err)
		}
		if err := r.Err(); !errors.Is(err, ErrMissing) || !errors.Is(err, syscall.EMFILE) {
			t.Error(fmt.Errorf("the root says: %w", err))
		}
	})
}
