package socketboot

import (
	"net"
	"net/netip"
	"strings"
	"testing"

	"github.com/purerdma/purerdma/internal/niltest"
)

func TestNilContext(t *testing.T) {
	n := Net{Bind: netip.MustParseAddrPort("127.0.0.1:0")}
	h := HandleFor(netip.MustParseAddrPort("127.0.0.1:1"), Magic)
	local := func(netip.AddrPort) AcceptorLocal { return owner{} }
	l, err := n.Serve(t.Context(), local)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	ours, theirs := net.Pipe()
	defer func() { _ = theirs.Close() }()
	niltest.Refuses(t, map[string]func() error{
		"Connect":        func() error { _, err := n.Connect(niltest.Context, h, owner{}); return err },
		"Serve":          func() error { _, err := n.Serve(niltest.Context, local); return err },
		"OpenPeer":       func() error { _, err := n.OpenPeer(niltest.Context, h.Addr()); return err },
		"ListenForPeers": func() error { _, _, err := n.ListenForPeers(niltest.Context); return err },
		"AdmitPeer":      func() error { _, err := n.AdmitPeer(niltest.Context, ours); return err },
		"Accept":         func() error { _, err := l.Accept(niltest.Context); return err },
		"Run": func() error {
			m, err := NewAcceptor(Layout225, Magic, owner{})
			if err != nil {
				return err
			}
			return m.Run(niltest.Context, theirs, Deadlines{})
		},
	})
	defer func() {
		if p, _ := recover().(string); !strings.Contains(p, "the context is nil") {
			t.Errorf("Interrupt: %q", p)
		}
	}()
	Interrupt(niltest.Context, theirs)
}
