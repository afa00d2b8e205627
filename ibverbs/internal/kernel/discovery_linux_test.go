package kernel

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/fstest"

	"github.com/purerdma/purerdma/ibverbs/driver"
	"github.com/purerdma/purerdma/ibverbs/internal/uapi"
	"github.com/purerdma/purerdma/ibverbs/internal/uverbs/uverbstest"
)

// adapter is a device of a machine that is made up. Every port has the GIDs.
type adapter struct {
	name, module, pci string // module "" is Soft-RoCE
	ports             int
	guid              uint64
	gids              []gidSlot
	parent            string // PCI of the physical function
}

// gidSlot is a slot of a GID table; without a GID it is empty.
type gidSlot struct{ gid, kind, netDev string }

const (
	gidLocal = "fe80:0000:0000:0000:0011:22ff:fe33:4455"
	gidIPv4  = "0000:0000:0000:0000:0000:ffff:0a09:0001"
)

var idOf = map[string]uint64{"mlx5_core": uapi.DriverMLX5, "": uapi.DriverRXE, "ice": uapi.DriverIRDMA}

// machineOf is sysfs and RDMA netlink of these adapters: uverbs0 is the first.
func machineOf(adapters ...adapter) (fstest.MapFS, []nlDevice) {
	m := fstest.MapFS{"class/infiniband_verbs/abi_version": file("6")}
	var nl []nlDevice
	for i, a := range adapters {
		node := fmt.Sprintf("uverbs%d", i)
		m[classVerbs+"/"+node+"/ibdev"] = file(a.name)
		m[classVerbs+"/"+node+"/dev"] = file(fmt.Sprintf("231:%d", 192+i))
		dir := "devices/virtual/infiniband/" + a.name
		if a.module == "" {
			m[dir+"/parent"] = file("eth0")
		} else {
			of := "devices/pci0000:00/" + a.pci
			dir = of + "/infiniband/" + a.name
			m[dir+"/device"] = link("../../../" + a.pci)
			m[of+"/driver"] = link("../../../bus/pci/drivers/" + a.module)
			m["bus/pci/drivers/"+a.module+"/module"] = file("")
			if a.parent != "" {
				m[of+"/physfn"] = link("../" + a.parent)
			}
		}
		m[classIB+"/"+a.name] = link("../../" + dir)
		m[dir+"/node_type"] = file("1: CA")
		m[dir+"/node_guid"] = file(guidText(a.guid))
		m[dir+"/sys_image_guid"] = file(guidText(a.guid + 1))
		for p := 1; p <= a.ports; p++ {
			port := fmt.Sprintf("%s/ports/%d", dir, p)
			m[port+"/state"] = file("4: ACTIVE")
			for slot, g := range a.gids {
				if g.gid == "" {
					g.gid = strings.Repeat("0000:", 7) + "0000"
				}
				m[fmt.Sprintf("%s/gids/%d", port, slot)] = file(g.gid)
				m[fmt.Sprintf("%s/gid_attrs/types/%d", port, slot)] = file(g.kind)
				m[fmt.Sprintf("%s/gid_attrs/ndevs/%d", port, slot)] = file(g.netDev)
			}
		}
		nl = append(nl, nlDevice{name: a.name, node: node, ports: uint32(a.ports), guid: a.guid, dev: 231<<8 | uint64(192+i), id: idOf[a.module]})
	}
	return m, nl
}

func guidText(g uint64) string {
	return fmt.Sprintf("%04x:%04x:%04x:%04x", uint16(g>>48), uint16(g>>32), uint16(g>>16), uint16(g))
}

// eachWay runs a test with the machine as netlink tells of it, and as sysfs alone does.
func eachWay(t *testing.T, adapters []adapter, f func(t *testing.T, w World)) {
	for _, way := range []string{"netlink", "sysfs"} {
		t.Run(way, func(t *testing.T) {
			m, nl := machineOf(adapters...)
			_, w := testWorld()
			w.Sys, w.Netlink = m, answer(nl)
			if way == "sysfs" {
				w.Netlink = func(uint16, bool, []byte) ([][]byte, error) { return nil, syscall.EPROTONOSUPPORT }
			}
			f(t, w)
		})
	}
}

func namesOf(t *testing.T, w World) ([]string, error) {
	t.Helper()
	is, err := infos(t, w)
	var names []string
	for _, i := range is {
		names = append(names, i.Name)
	}
	return names, err
}

func connectX(name string, n int) adapter {
	return adapter{name: name, module: "mlx5_core", pci: fmt.Sprintf("0000:%02x:00.0", n), ports: 1, guid: uint64(n)}
}

func TestNoDevices(t *testing.T) {
	eachWay(t, nil, func(t *testing.T, w World) {
		if names, err := namesOf(t, w); len(names) != 0 || err != nil {
			t.Errorf("%v, %v", names, err)
		}
	})
}

// Tables grow: no number of devices or ports is too large.
func TestManyDevicesAndPorts(t *testing.T) {
	for _, n := range []int{17, 22, 33, 40, 65} {
		var adapters []adapter
		var want []string
		for i := range n {
			a := connectX(fmt.Sprintf("mlx5_%d", i), i)
			a.ports = 1 + i%3
			adapters = append(adapters, a)
			want = append(want, a.name)
		}
		slices.Reverse(adapters) // the order of nodes is not that of names
		eachWay(t, adapters, func(t *testing.T, w World) {
			names, err := namesOf(t, w)
			if err != nil || !slices.Equal(names, want) {
				t.Errorf("%d devices: %v, %v", n, names, err)
			}
			is, _ := infos(t, w)
			for i := range is {
				if is[i].Ports != 1+i%3 {
					t.Errorf("%s has %d ports", is[i].Name, is[i].Ports)
				}
			}
		})
	}
	many := connectX("mlx5_0", 1)
	many.ports = 255
	eachWay(t, []adapter{many}, func(t *testing.T, w World) {
		if is, err := infos(t, w); err != nil || len(is) != 1 || is[0].Ports != 255 {
			t.Errorf("%+v, %v", is, err)
		}
	})
}

// The driver is known by the link to it, whatever the name.
func TestNamesSayNothing(t *testing.T) {
	var adapters []adapter
	for i, name := range []string{"mlx5_bond_0", "ibp3s0f0", "mlx5_11", "rocep1s0", "mlx5_1", "fast"} {
		adapters = append(adapters, connectX(name, i))
	}
	adapters = append(adapters, adapter{name: "mlx5_9", ports: 1}) // a Soft-RoCE device, renamed
	eachWay(t, adapters, func(t *testing.T, w World) {
		is, err := infos(t, w)
		if err != nil || len(is) != len(adapters) {
			t.Fatalf("%+v, %v", is, err)
		}
		for _, i := range is {
			if soft := i.Name == "mlx5_9"; i.Software != soft || i.Driver != map[bool]string{false: "mlx5", true: "rxe"}[soft] || soft != (i.PCI == "") {
				t.Errorf("%+v", i)
			}
		}
		if last := is[len(is)-1].Name; last != "mlx5_9" {
			t.Errorf("%s comes after a device in software", last)
		}
	})
}

// Virtual functions may have no GUID at all; each is a device of its own.
func TestVirtualFunctionsWithoutGUIDs(t *testing.T) {
	physical := connectX("mlx5_0", 1)
	vf := []adapter{physical, connectX("mlx5_1", 2), connectX("mlx5_2", 3)}
	for i := 1; i < 3; i++ {
		vf[i].guid, vf[i].parent = 0, physical.pci
	}
	eachWay(t, vf, func(t *testing.T, w World) {
		is, err := infos(t, w)
		if err != nil || len(is) != 3 {
			t.Fatalf("%+v, %v", is, err)
		}
		for i := range is {
			if want := map[bool]string{true: physical.pci}[i > 0]; is[i].Parent != want || is[i].PCI == "" || (is[i].NodeGUID == 0) != (i > 0) {
				t.Errorf("%+v", is[i])
			}
			if gids, err := w.sysGIDs(is[i].Name, 1); len(gids) != 0 || err != nil && !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("GIDs %v, %v", gids, err)
			}
		}
	})
}

// A bond is known by the net device of GIDs. It may be over two adapters.
func TestBonds(t *testing.T) {
	lag := connectX("mlx5_bond_0", 1)
	lag.gids = []gidSlot{{gidLocal, "RoCE v2", "bond0"}, {}, {gidIPv4, "RoCE v2", "bond0"}}
	other := lag
	other.name, other.pci = "rocep9s0", "0000:09:00.0"
	alone := connectX("mlx5_4", 4)
	alone.gids = []gidSlot{{gidIPv4, "RoCE v2", "eth4"}, {gidLocal, "RoCE v2", "eth4.100"}} // the last is of a VLAN
	eachWay(t, []adapter{other, lag, alone}, func(t *testing.T, w World) {
		w.Sys.(fstest.MapFS)["class/net/bond0/bonding/mode"] = file("802.3ad 4")
		is, err := infos(t, w)
		if err != nil || len(is) != 3 {
			t.Fatalf("%+v, %v", is, err)
		}
		for _, i := range is {
			if want := map[bool]string{true: "bond0"}[i.Name != "mlx5_4"]; i.Bond != want {
				t.Errorf("%s is of bond %q", i.Name, i.Bond)
			}
		}
		f := New(w).(driver.NetDeviceFinder)
		if got := f.FindNetDevice("bond0"); !slices.Equal(got, []string{"rocep9s0", "mlx5_bond_0"}) {
			t.Errorf("bond0 belongs to %v", got)
		}
		if got := f.FindNetDevice("eth4"); !slices.Equal(got, []string{"mlx5_4"}) {
			t.Errorf("eth4 belongs to %v", got)
		}
	})
}

// The hardware address of an IPoIB device carries the GUID of the port, not of the node.
func TestIPoIBByPortGUID(t *testing.T) {
	a := connectX("mlx5_0", 1)
	a.guid, a.ports = 0xb8599f0300aabb10, 1
	a.gids = []gidSlot{{"fe80:0000:0000:0000:b859:9f03:00aa:bb12", "IB/RoCE v1", ""}}
	eachWay(t, []adapter{a, connectX("mlx5_1", 2)}, func(t *testing.T, w World) {
		m := w.Sys.(fstest.MapFS)
		m["class/net/ib0/type"] = file("32")
		m["class/net/ib0/address"] = file("00:00:10:87:fe:80:00:00:00:00:00:00:b8:59:9f:03:00:aa:bb:12")
		m["class/net/ib1/type"] = file("32")
		m["class/net/ib1/address"] = file("00:00:10:87:fe:80:00:00:00:00:00:00:b8:59:9f:03:00:aa:bb:10") // that of the node
		m["class/net/ib2/type"] = file("32")
		m["class/net/ib2/address"] = file("00:00")
		for name, want := range map[string][]string{"ib0": {"mlx5_0"}, "ib1": nil, "ib2": nil} {
			if got := New(w).(driver.NetDeviceFinder).FindNetDevice(name); !slices.Equal(got, want) {
				t.Errorf("%s belongs to %v, want %v", name, got, want)
			}
		}
	})
}

// One failed open is no verdict: the next one may succeed.
func TestOpenAgainAfterFailure(t *testing.T) {
	k, w := testWorld()
	d := deviceOf(t, w, "rxe0", plain{id: uapi.DriverRXE})
	k.OpenErr = syscall.EIO
	if _, err := d.Open(); !errors.Is(err, driver.ErrDeviceGone) {
		t.Errorf("%v", err)
	}
	k.OpenErr = nil
	c, err := d.Open()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Close(); err != nil {
		t.Error(err)
	}
}

// A node whose number was given to another device, with the same device number, is not
// taken for the one that was listed; one that was renamed is.
func TestNodeNumberIsReused(t *testing.T) {
	for name, c := range map[string]struct {
		nl   []nlDevice // at the time of Open
		gone bool
	}{
		"renamed":  {testNetlink(), false},
		"replaced": {nil, true},
	} {
		k, w := testWorld()
		d := deviceOf(t, w, "rxe0", plain{id: uapi.DriverRXE})
		w.Sys.(fstest.MapFS)[classVerbs+"/uverbs1/ibdev"] = file("rxe9")
		d.(*device).k.w.Netlink = answer(c.nl)
		got, err := d.Open()
		if errors.Is(err, driver.ErrDeviceGone) != c.gone || (err == nil) == c.gone {
			t.Errorf("%s: %v", name, err)
		}
		if c.gone && !strings.Contains(err.Error(), "rxe9") {
			t.Errorf("%s: %v", name, err)
		}
		if got != nil {
			if err := got.Close(); err != nil {
				t.Error(err)
			}
		}
		if files, objects := k.Left(); files+objects != 0 {
			t.Errorf("%s: left %d files, %d objects", name, files, objects)
		}
	}
}

// A device that is renamed while it is open is the same: what sysfs tells of it is found under the new name.
func TestRenamedWhileOpen(t *testing.T) {
	k, w := testWorld()
	k.Methods[uverbstest.QueryPort] = func(c *uverbstest.Call) error {
		resp := make([]byte, 48)
		resp[16] = 4 // slots of the GID table, which this kernel tells by sysfs alone
		c.SetOut(uapi.AttrQueryPortResp, resp)
		return nil
	}
	m := w.Sys.(fstest.MapFS)
	c, err := deviceOf(t, w, "rxe0", plain{id: uapi.DriverRXE}).Open()
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	const dir = "devices/virtual/infiniband/rxe0"
	for name, f := range m {
		if rest, ok := strings.CutPrefix(name, dir); ok {
			delete(m, name)
			m["devices/virtual/infiniband/rocep1s0"+rest] = f
		}
	}
	delete(m, classIB+"/rxe0")
	m[classIB+"/rocep1s0"] = link("../../devices/virtual/infiniband/rocep1s0")
	m[classVerbs+"/uverbs1/ibdev"] = file("rocep1s0")
	m["devices/virtual/infiniband/rocep1s0/ports/1/hw_counters/sent_pkts"] = file("7")
	m["devices/virtual/infiniband/rocep1s0/ports/1/pkeys/0"] = file("0xffff")
	if cs, err := c.(driver.CounterReader).Counters(1); err != nil || len(cs) != 1 || cs[0].Value != 7 {
		t.Errorf("counters %+v, %v", cs, err)
	}
	if keys, err := c.(driver.PKeyReader).PKeys(1); err != nil || len(keys) != 1 {
		t.Errorf("P_Keys %x, %v", keys, err)
	}
	if gids, err := c.GIDs(1); err != nil || len(gids) == 0 || gids[0].NetDev != "eth0" {
		t.Errorf("GIDs %+v, %v", gids, err)
	}
}

// Ports of one device may differ in state and link layer.
func TestPortsSideBySide(t *testing.T) {
	k, w := testWorld()
	k.Dev = devMLX5
	k.Methods[uverbstest.QueryPort] = func(c *uverbstest.Call) error {
		resp := make([]byte, 48)
		binary.NativeEndian.PutUint32(resp[16:], 4)
		port := c.Data(uapi.AttrQueryPortPortNum)
		resp[26], resp[37] = []byte{0, 1, 4}[port], []byte{0, 2, 1}[port] // state, link_layer
		binary.NativeEndian.PutUint16(resp[22:], uint16(port-1)*7)        // LID
		c.SetOut(uapi.AttrQueryPortResp, resp)
		return nil
	}
	c, err := deviceOf(t, w, "mlx5_0", plain{id: uapi.DriverMLX5}).Open()
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	one, err1 := c.QueryPort(1)
	two, err2 := c.QueryPort(2)
	if err1 != nil || err2 != nil || one.State != driver.PortDown || one.LinkLayer != driver.LinkEthernet || one.LID != 0 ||
		two.State != driver.PortActive || two.LinkLayer != driver.LinkInfiniBand || two.LID != 7 {
		t.Errorf("%+v %v\n%+v %v", one, err1, two, err2)
	}
}

func TestPKeysAndNetDeviceOfAPort(t *testing.T) {
	_, w := testWorld()
	m := w.Sys.(fstest.MapFS)
	const dir = "devices/virtual/infiniband/rxe0/ports/1/pkeys"
	m[path.Join(dir, "0")], m[path.Join(dir, "1")] = file("0xffff"), file("0x0000")
	told := answer(testNetlink())
	w.Netlink = func(cmd uint16, dump bool, ask []byte) ([][]byte, error) {
		if cmd == uapi.NLDevCmdPortGet {
			return [][]byte{appendString(append32(nil, uapi.NLDevAttrNDevIndex, 4), uapi.NLDevAttrNDevName, "v0")}, nil
		}
		return told(cmd, dump, ask)
	}
	c, err := deviceOf(t, w, "rxe0", plain{id: uapi.DriverRXE}).Open()
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	keys, err := c.(driver.PKeyReader).PKeys(1)
	if err != nil || !slices.Equal(keys, []uint16{0xffff, 0}) {
		t.Errorf("%x, %v", keys, err)
	}
	if name, index, err := c.(driver.PortNetDeviceReader).PortNetDevice(1); name != "v0" || index != 4 || err != nil {
		t.Errorf("%s, %d, %v", name, index, err)
	}
	if _, err := c.(driver.PKeyReader).PKeys(2); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("port 2: %v", err)
	}
	m[path.Join(dir, "1")] = file("many")
	if keys, err := c.(driver.PKeyReader).PKeys(1); err == nil {
		t.Errorf("%x", keys)
	}
}

// Only uverbs is needed: machines without management nodes have their devices.
func TestOnlyUverbsIsNeeded(t *testing.T) {
	eachWay(t, []adapter{connectX("mlx5_0", 1)}, func(t *testing.T, w World) {
		for name := range w.Sys.(fstest.MapFS) {
			if strings.Contains(name, "infiniband_mad") || strings.Contains(name, "infiniband_cm") {
				t.Fatalf("the machine has %s", name)
			}
		}
		if names, err := namesOf(t, w); !slices.Equal(names, []string{"mlx5_0"}) || err != nil {
			t.Errorf("%v, %v", names, err)
		}
	})
}
