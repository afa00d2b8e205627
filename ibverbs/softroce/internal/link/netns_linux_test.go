package link

import (
	"net/netip"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// namespace is a network namespace with a thread in it. It ends with the test.
type namespace struct {
	t   testing.TB
	do  chan func()
	tid int
}

func newNamespace(t testing.TB) *namespace {
	t.Helper()
	n := &namespace{t: t, do: make(chan func())}
	made := make(chan error)
	go func() {
		runtime.LockOSThread() // for ever: the thread ends with the goroutine
		err := unix.Unshare(unix.CLONE_NEWNET)
		n.tid = unix.Gettid()
		made <- err
		for f := range n.do {
			f()
		}
	}()
	t.Cleanup(func() { close(n.do) })
	if err := <-made; err != nil {
		t.Skipf("a network namespace needs CAP_SYS_ADMIN: %v", err)
	}
	return n
}

// run runs f in the namespace. It must not end the test.
func (n *namespace) run(f func()) {
	done := make(chan struct{})
	n.do <- func() { defer close(done); f() }
	<-done
}

// ip runs ip(8) in the namespace.
func (n *namespace) ip(args string) {
	n.t.Helper()
	var out []byte
	var err error
	n.run(func() { out, err = exec.Command("ip", strings.Fields(args)...).CombinedOutput() })
	if err != nil {
		n.t.Fatalf("ip %s: %v\n%s", args, err, out)
	}
}

var (
	vethA, vethB   = netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("192.0.2.2")
	vethA6, vethB6 = netip.MustParseAddr("2001:db8::1"), netip.MustParseAddr("2001:db8::2")
)

// veth is two namespaces with a cable between them.
func veth(t testing.TB) (a, b *namespace) {
	t.Helper()
	if _, err := exec.LookPath("ip"); err != nil {
		t.Skip("needs ip of iproute2")
	}
	a, b = newNamespace(t), newNamespace(t)
	a.ip("link add v0 mtu 4200 type veth peer name v1 mtu 4200")
	a.ip("link set v1 netns " + strconv.Itoa(b.tid))
	for _, end := range []struct {
		n      *namespace
		dev    string
		v4, v6 netip.Addr
	}{{a, "v0", vethA, vethA6}, {b, "v1", vethB, vethB6}} {
		end.n.ip("link set lo up")
		end.n.ip("addr add " + end.v4.String() + "/24 dev " + end.dev)
		end.n.ip("addr add " + end.v6.String() + "/64 dev " + end.dev + " nodad")
		end.n.ip("link set " + end.dev + " up")
	}
	return a, b
}

// packet and udp open a link in the namespace.
func (n *namespace) packet(addr netip.Addr) Link {
	n.t.Helper()
	return n.open(func() (Link, error) { return ListenPacket(PacketConfig{Addr: addr}) })
}

func (n *namespace) udp(addr netip.Addr) Link {
	n.t.Helper()
	return n.open(func() (Link, error) {
		u, err := ListenUDP(UDPConfig{Addr: addr})
		if err != nil {
			return nil, err
		}
		return u, nil
	})
}

func (n *namespace) open(listen func() (Link, error)) (l Link) {
	n.t.Helper()
	var err error
	n.run(func() { l, err = listen() })
	if err != nil {
		n.t.Fatal(err)
	}
	n.t.Cleanup(func() { _ = l.Close() })
	return l
}
