package socketboot

import (
	"context"
	"errors"
	"net/netip"
	"strings"
	"testing"
)

// owner is both ends' owner, with one device and no queue pairs.
type owner struct{}

func (owner) Devices() DevList                               { return DevList{Devs: []int32{0}} }
func (owner) Prepare(DevList) (Metadata, error)              { return Metadata{}, errors.New("not wanted") }
func (owner) Ready(*Metadata) error                          { return nil }
func (owner) Establish(DevList, *Metadata) (Metadata, error) { return Metadata{}, nil }
func (owner) Abort(error)                                    {}

// An owner that is nil is refused at the call; a listener whose owner has none for a peer drops that peer and goes on.
func TestNilOwners(t *testing.T) {
	n := Net{Bind: netip.MustParseAddrPort("127.0.0.1:0")}
	h := HandleFor(netip.MustParseAddrPort("127.0.0.1:1"), Magic)
	if _, err := NewConnector(Layout225, h, nil); !errors.Is(err, errNoLocal) {
		t.Errorf("NewConnector: %v", err)
	}
	if _, err := NewAcceptor(Layout225, Magic, nil); !errors.Is(err, errNoLocal) {
		t.Errorf("NewAcceptor: %v", err)
	}
	if _, err := n.Connect(t.Context(), h, nil); !errors.Is(err, errNoLocal) {
		t.Errorf("Connect: %v", err)
	}
	if _, err := n.Serve(t.Context(), nil); !errors.Is(err, errNoLocal) {
		t.Errorf("Serve: %v", err)
	}
	dropped := make(chan error, 2)
	n.Dropped = func(_ netip.AddrPort, reason error) { dropped <- reason }
	l, err := n.Serve(t.Context(), func(netip.AddrPort) AcceptorLocal { return nil })
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	for range 2 {
		if _, err := n.Connect(t.Context(), l.Handle(), owner{}); err == nil {
			t.Error("connected to nobody")
		}
		if err := <-dropped; err == nil {
			t.Error("dropped without a reason")
		}
	}
}

// What cannot be dialed or listened at is an error of this package before the system is asked.
func TestNoAddress(t *testing.T) {
	n := Net{Bind: netip.MustParseAddrPort("127.0.0.1:0")}
	if _, err := n.OpenPeer(t.Context(), netip.AddrPort{}); err == nil || !strings.Contains(err.Error(), "there is no address") {
		t.Errorf("OpenPeer: %v", err)
	}
	if err := HandleFor(netip.MustParseAddrPort("255.255.255.255:1"), Magic).Check(); !errors.Is(err, ErrHandle) {
		t.Errorf("a handle of all hosts: %v", err)
	}
	over, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := n.Serve(over, func(netip.AddrPort) AcceptorLocal { return owner{} }); !errors.Is(err, context.Canceled) {
		t.Errorf("Serve after its context: %v", err)
	}
	if _, _, err := n.ListenForPeers(over); !errors.Is(err, context.Canceled) {
		t.Errorf("ListenForPeers after its context: %v", err)
	}
}
