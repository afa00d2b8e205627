package kernel

import (
	"strings"
	"syscall"
	"testing"
	"testing/fstest"

	"github.com/purerdma/purerdma/ibverbs/driver"
	"github.com/purerdma/purerdma/ibverbs/internal/uapi"
)

// FuzzSysfs has one file of a device say anything: nothing panics, the other device is listed as it is, and what is told is within
// what can be.
func FuzzSysfs(f *testing.F) {
	for i, text := range []string{"", "x", "-1", "99999999999999999999", "::::", "fe80:0000:0000:0000:0000:0000:0000:0001", "1: CA", "300: x", "../../..", "0:0", "231:99999999999"} {
		f.Add(i, []byte(text))
	}
	a, b := connectX("mlx5_0", 1), connectX("mlx5_1", 2)
	a.gids = []gidSlot{{gidIPv4, "RoCE v2", "eth0"}}
	whole, nl := machineOf(a, b)
	const port = "devices/pci0000:00/0000:01:00.0/infiniband/mlx5_0/ports/1/"
	whole[port+"pkeys/0"], whole[port+"hw_counters/rcvd_pkts"], whole[port+"counters/port_xmit_data"] = file("0xffff"), file("1"), file("2")
	whole["class/net/eth0/type"], whole["class/net/eth0/address"] = file("32"), file("00")
	var names []string
	for name := range whole {
		if !strings.Contains(name, "mlx5_1") && !strings.Contains(name, b.pci) && !strings.Contains(name, "uverbs1") {
			names = append(names, name)
		}
	}
	f.Fuzz(func(t *testing.T, which int, text []byte) {
		m := fstest.MapFS{}
		for name, file := range whole {
			m[name] = file
		}
		changed := names[uint(which)%uint(len(names))]
		m[changed] = &fstest.MapFile{Data: text, Mode: whole[changed].Mode}
		k, w := testWorld()
		k.Dev = 231<<8 | 192
		w.Sys = m
		for _, way := range []bool{true, false} {
			if w.Netlink = answer(nl); !way {
				w.Netlink = func(uint16, bool, []byte) ([][]byte, error) { return nil, syscall.EPROTONOSUPPORT }
			}
			found, _ := New(w, plain{id: uapi.DriverMLX5}).Devices()
			other := false
			for _, d := range found {
				in := d.Info()
				other = other || in.Name == "mlx5_1" && in.Driver == "mlx5" && in.PCI == b.pci && in.NodeGUID == b.guid
				if in.Ports < 0 || in.Ports > maxPorts || in.NUMANode < -1 || strings.ContainsAny(in.Name, "/\x00") {
					t.Errorf("%+v", in)
				}
				if in.Name != "mlx5_0" {
					continue
				}
				c, err := d.Open()
				if err != nil {
					continue
				}
				_, _ = c.(driver.CounterReader).Counters(1)
				_, _ = c.(driver.PKeyReader).PKeys(1)
				if err := c.Close(); err != nil {
					t.Error(err)
				}
			}
			if !other {
				t.Errorf("%s of %q hides the other device", changed, text)
			}
		}
		_, _ = w.sysGIDs("mlx5_0", 1)
		_ = w.rdmaDevices("eth0")
	})
}
