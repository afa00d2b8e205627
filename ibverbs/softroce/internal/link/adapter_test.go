package link

import (
	"errors"
	"io/fs"
	"net/netip"
	"strings"
	"syscall"
	"testing"
	"testing/fstest"

	"github.com/purerdma/purerdma/ibverbs/driver"
)

// fakeSys is a machine with an adapter on e0, one whose RoCE v2 is off on e1, and
// Soft-RoCE on e2.
func fakeSys() fstest.MapFS {
	file := func(s string) *fstest.MapFile { return &fstest.MapFile{Data: []byte(s + "\n")} }
	const port = "/ports/1/gid_attrs/"
	m := fstest.MapFS{"devices/rxe0/parent": file("e2")}
	for _, r := range [][3]string{{"mlx5_0", "e0", "RoCE v2"}, {"mlx5_1", "e1", "IB/RoCE v1"}, {"rxe0", "e2", "RoCE v2"}} {
		dir := "devices/" + r[0]
		m["class/infiniband/"+r[0]] = &fstest.MapFile{Data: []byte("../../" + dir), Mode: fs.ModeSymlink | 0o777}
		m[dir+port+"ndevs/0"], m[dir+port+"types/0"] = file(r[1]), file("IB/RoCE v1")
		m[dir+port+"ndevs/1"], m[dir+port+"types/1"] = file(r[1]), file(r[2])
		m[dir+port+"ndevs/2"], m[dir+port+"types/2"] = file(""), file("")
	}
	return m
}

// R59: an address whose adapter does RoCE in hardware is refused, with who does it.
func TestR59AdapterTakesThePackets(t *testing.T) {
	for netdev, want := range map[string]string{"e0": "mlx5_0", "e1": "", "e2": "", "lo": ""} {
		if got := adapterOf(fakeSys(), netdev); got != want {
			t.Errorf("%s: %q, want %q", netdev, got, want)
		}
	}
	if got := adapterOf(fstest.MapFS{}, "e0"); got != "" {
		t.Errorf("a machine without RDMA has %q", got)
	}
	addr := netip.MustParseAddr("10.0.0.1")
	netdevs := func() ([]Netdev, error) {
		return []Netdev{{Name: "e0", MTU: 1500, Prefixes: []netip.Prefix{netip.PrefixFrom(addr, 24)}}}, nil
	}
	_, errUDP := ListenUDP(UDPConfig{Addr: addr, Netdevs: netdevs, Sys: fakeSys()})
	_, errPacket := ListenPacket(PacketConfig{Addr: addr, Netdevs: netdevs, Sys: fakeSys()})
	for _, err := range []error{errUDP, errPacket} {
		var de *driver.Error
		if errors.Is(err, syscall.ENOTSUP) {
			continue // no packet sockets on this system
		}
		if !errors.Is(err, syscall.EBUSY) || !errors.As(err, &de) || !strings.Contains(de.Hint, "open mlx5_0") {
			t.Errorf("%v", err)
		}
	}
}
