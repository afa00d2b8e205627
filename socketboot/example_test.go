package socketboot_test

import (
	"context"
	"fmt"
	"net"
	"net/netip"

	"github.com/purerdma/purerdma/socketboot"
)

// sender and receiver stand for what makes queue pairs.
type sender struct{ metadata socketboot.Metadata }

func (s *sender) Devices() socketboot.DevList { return socketboot.DevList{Devs: []int32{0}} }
func (s *sender) Prepare(socketboot.DevList) (socketboot.Metadata, error) {
	return s.metadata, nil
}
func (s *sender) Ready(peer *socketboot.Metadata) error {
	fmt.Println("sender is connected to queue pair", peer.QPs[0].QPN, "of", peer.DevName)
	return nil
}
func (s *sender) Abort(reason error) { fmt.Println(reason) }

type receiver struct{ metadata socketboot.Metadata }

func (r *receiver) Devices() socketboot.DevList { return socketboot.DevList{Devs: []int32{0}} }
func (r *receiver) Establish(_ socketboot.DevList, peer *socketboot.Metadata) (socketboot.Metadata, error) {
	fmt.Println("receiver is connected to queue pair", peer.QPs[0].QPN, "of", peer.DevName)
	return r.metadata, nil
}
func (r *receiver) Abort(reason error) { fmt.Println(reason) }

func metadata(name string, qpn uint32) socketboot.Metadata {
	return socketboot.Metadata{
		QPs: []socketboot.QPInfo{{QPN: qpn}},
		Devs: []socketboot.DevInfo{{Port: 1, MTU: 3, LinkLayer: socketboot.LinkEthernet,
			GID: netip.MustParseAddr("192.0.2.1").As16(), FIFORKey: 0x1234}},
		DevName:  name,
		FIFOAddr: 0x7f0000000000,
	}
}

// Two ends in memory. A machine does no I/O of its own, so bytes can be carried by anything.
func ExampleMachine() {
	handle := socketboot.HandleFor(netip.MustParseAddrPort("192.0.2.1:4791"), socketboot.Magic)
	c, err := socketboot.NewConnector(socketboot.Layout225, handle, &sender{metadata("rxe1", 17)})
	if err != nil {
		fmt.Println(err)
		return
	}
	a, err := socketboot.NewAcceptor(socketboot.Layout225, handle.Magic(), &receiver{metadata("rxe0", 18)})
	if err != nil {
		fmt.Println(err)
		return
	}
	carry := func(from, to *socketboot.Machine) error {
		out := from.Output()
		from.Sent(len(out))
		return to.Input(out)
	}
	for !c.Done() || !a.Done() {
		fmt.Println(c.State(), "->", a.State())
		if err := carry(c, a); err != nil {
			fmt.Println(err)
			return
		}
		if err := carry(a, c); err != nil {
			fmt.Println(err)
			return
		}
	}
	// Output:
	// Connect -> Accept
	// Send -> Recv
	// receiver is connected to queue pair 17 of rxe1
	// sender is connected to queue pair 18 of rxe0
	// Connected -> PendingReady
}

// Over TCP: one end serves, the other gets the handle by other means and connects.
func ExampleNet() {
	ctx := context.Background()
	network := socketboot.Net{Bind: netip.MustParseAddrPort("127.0.0.1:0")}
	listener, err := network.Serve(ctx, func(netip.AddrPort) socketboot.AcceptorLocal { return &receiver{metadata("rxe0", 18)} })
	if err != nil {
		fmt.Println(err)
		return
	}
	defer listener.Close()

	out, err := network.Connect(ctx, listener.Handle(), &sender{metadata("rxe1", 17)})
	if err != nil {
		fmt.Println(err)
		return
	}
	in, err := listener.Accept(ctx)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer in.Close()

	out.Close()
	<-in.Gone()
	fmt.Println(in.Peer.DevName, "has gone")
	// Output:
	// receiver is connected to queue pair 17 of rxe1
	// sender is connected to queue pair 18 of rxe0
	// rxe1 has gone
}

// What a HandshakeError says about a stray.
func ExampleHandshakeError() {
	a, err := socketboot.NewAcceptor(socketboot.Layout225, socketboot.Magic, &receiver{})
	if err != nil {
		fmt.Println(err)
		return
	}
	scanner, stray := net.Pipe()
	go func() { _, _ = scanner.Write([]byte("GET / HTTP/1.1\r\n\r\n")) }()
	_ = a.Run(context.Background(), stray, socketboot.Deadlines{})
	// Output:
	// socketboot: handshake with pipe as acceptor in Accept: wrong magic; the peer is not of this job: a port scanner, an old client, or another NCCL_SOCKET_MAGIC
}
