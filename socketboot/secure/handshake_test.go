package secure

import (
	"net/netip"
	"testing"
	"time"

	"github.com/purerdma/purerdma/socketboot"
)

// end is an owner of queue pairs as far as the handshake needs it.
type end struct{}

func metadata() (m socketboot.Metadata, err error) {
	m = socketboot.Metadata{QPs: []socketboot.QPInfo{{QPN: 17}}, DevName: "rxe0", FIFOAddr: 0x7f0000000000}
	m.Devs = []socketboot.DevInfo{{Port: 1, MTU: 3, LinkLayer: socketboot.LinkEthernet, GID: netip.MustParseAddr("192.0.2.1").As16(), FIFORKey: 1}}
	return m, nil
}

func (end) Devices() socketboot.DevList                             { return socketboot.DevList{Devs: []int32{0}} }
func (end) Prepare(socketboot.DevList) (socketboot.Metadata, error) { return metadata() }
func (end) Ready(*socketboot.Metadata) error                        { return nil }
func (end) Abort(error)                                             {}
func (end) Establish(socketboot.DevList, *socketboot.Metadata) (socketboot.Metadata, error) {
	return metadata()
}

// The handshake of the net transport is secured by the same values.
func TestNetHandshake(t *testing.T) {
	for name, w := range wraps(t) {
		t.Run(name, func(t *testing.T) {
			n := socketboot.Net{Bind: netip.MustParseAddrPort("127.0.0.1:0"), Secure: w, Deadlines: socketboot.Deadlines{Total: 20 * time.Second}}
			l, err := n.Serve(t.Context(), func(netip.AddrPort) socketboot.AcceptorLocal { return end{} })
			if err != nil {
				t.Fatal(err)
			}
			defer l.Close()
			plainNet := n
			plainNet.Secure = nil
			if _, err := plainNet.Connect(t.Context(), l.Handle(), end{}); err == nil {
				t.Error("a plain peer was served")
			}
			c, err := n.Connect(t.Context(), l.Handle(), end{})
			if err != nil {
				t.Fatal(err)
			}
			a, err := l.Accept(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			_ = c.Close()
			<-a.Gone()
			_ = a.Close()
		})
	}
}
