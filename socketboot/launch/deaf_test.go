package launch

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/purerdma/purerdma/socketboot"
	"github.com/purerdma/purerdma/socketboot/bootstrap"
	"github.com/purerdma/purerdma/socketboot/internal/deaf"
)

// Where the root cannot accept, rank 0, whose process it is in, says so when it gives up.
func TestRootWithoutDescriptors(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	failed, first := make(chan struct{}), true
	go func() {
		for range 3 { // the first has been noted by then
			<-failed
		}
		cancel()
	}()
	_, err := Info{Size: 2, IDFile: filepath.Join(t.TempDir(), "id")}.Meet(ctx, bootstrap.Config{Net: socketboot.Net{
		Bind: netip.MustParseAddrPort("127.0.0.1:0"),
		Listen: func(ctx context.Context, a netip.AddrPort) (net.Listener, error) {
			ln, err := new(net.ListenConfig).Listen(ctx, "tcp", a.String())
			if err == nil && first {
				first, ln = false, deaf.Listener{Listener: ln, Failed: failed}
			}
			return ln, err
		},
	}})
	if !errors.Is(err, context.Canceled) || !errors.Is(err, syscall.EMFILE) {
		t.Error(err)
	}
}
