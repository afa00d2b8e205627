package socketboot

import (
	"errors"
	"net"
	"net/netip"
	"strings"
	"syscall"
	"testing"
	"time"
)

// A negative limit is an error that names it, in every call that takes a Net; it is not the default.
func TestNegativeLimits(t *testing.T) {
	h := HandleFor(netip.MustParseAddrPort("127.0.0.1:1"), Magic)
	for field, n := range map[string]Net{
		"Net.Deadlines.Hello": {Deadlines: Deadlines{Hello: -1}},
		"Net.Deadlines.Step":  {Deadlines: Deadlines{Step: -time.Second}},
		"Net.Deadlines.Total": {Deadlines: Deadlines{Total: -1}},
		"Net.Retry.Unit":      {Retry: Retry{Unit: -1}},
		"Net.Retry.Each":      {Retry: Retry{Each: -1}},
		"Net.MaxPending":      {MaxPending: -1},
	} {
		t.Run(field, func(t *testing.T) {
			n.Bind = netip.MustParseAddrPort("127.0.0.1:0")
			aborted := &countAborts{}
			_, connect := n.Connect(t.Context(), h, aborted)
			_, serve := n.Serve(t.Context(), func(netip.AddrPort) AcceptorLocal { return owner{} })
			_, open := n.OpenPeer(t.Context(), h.Addr())
			_, _, listen := n.ListenForPeers(t.Context())
			ours, theirs := net.Pipe()
			defer func() { _ = theirs.Close() }()
			_, admit := n.AdmitPeer(t.Context(), ours)
			for call, err := range map[string]error{"Connect": connect, "Serve": serve, "OpenPeer": open, "ListenForPeers": listen, "AdmitPeer": admit} {
				if !errors.Is(err, syscall.EINVAL) || err != nil && !strings.Contains(err.Error(), field+" is -1") {
					t.Errorf("%s: %v", call, err)
				}
			}
			if aborted.n != 1 {
				t.Errorf("the owner was told %d times", aborted.n)
			}
			if _, err := ours.Write([]byte{0}); err == nil {
				t.Error("AdmitPeer left the connection open")
			}
		})
	}
	m, err := NewAcceptor(Layout225, Magic, owner{})
	if err != nil {
		t.Fatal(err)
	}
	if err := m.Run(t.Context(), nil, Deadlines{Step: -1}); !errors.Is(err, syscall.EINVAL) || !strings.Contains(err.Error(), "Deadlines.Step") {
		t.Errorf("Run: %v", err)
	}
}

type countAborts struct {
	owner
	n int
}

func (c *countAborts) Abort(error) { c.n++ }
