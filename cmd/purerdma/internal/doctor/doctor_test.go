package doctor

import (
	"encoding/binary"
	"errors"
	"strings"
	"syscall"
	"testing"
	"testing/fstest"

	"github.com/purerdma/purerdma/cmd/purerdma/internal/inventory"
)

func file(text string) *fstest.MapFile { return &fstest.MapFile{Data: []byte(text)} }

// config is a PCI configuration space with the capability Express, and with ACS in
// the extended part.
func config(control, acs uint16) *fstest.MapFile {
	b := make([]byte, 512)
	b[capPointer] = 0x40
	b[0x40], b[0x41] = 0x01, 0x50 // power management first
	b[0x50] = capExpress
	binary.LittleEndian.PutUint16(b[0x50+deviceControl:], control)
	binary.LittleEndian.PutUint32(b[firstExtended:], 0x0001|0x140<<20)
	binary.LittleEndian.PutUint32(b[0x140:], extendedACS)
	binary.LittleEndian.PutUint16(b[0x140+acsControl:], acs)
	return &fstest.MapFile{Data: b}
}

// healthy is a machine with an adapter, a GPU and nothing wrong.
func healthy() *World {
	const net = "sys/class/net/eth0"
	return &World{
		Root: fstest.MapFS{
			"sys/module/ib_core/refcnt":                file("1"),
			"sys/module/ib_uverbs/refcnt":              file("1"),
			"sys/module/nvidia_peermem/version":        file("580"),
			"sys/class/infiniband_verbs/abi_version":   file("6"),
			"sys/class/infiniband_verbs/uverbs0/ibdev": file("mlx5_0"),
			"dev/infiniband/uverbs0":                   file(""),
			"tmp/nvidia-mps/control":                   file(""),
			net + "/mtu":                               file("4200\n"),
			net + "/ecn/roce_np/enable/3":              file("1\n"),
			net + "/qos/pfc":                           file("0,0,0,1,0,0,0,0\n"),
			"proc/meminfo":                             file("MemTotal: 1 kB\nHugePages_Total:     512\n"),
			"proc/cmdline":                             file("quiet iommu=pt\n"),
			"sys/class/iommu/dmar0/type":               file("1"),
			"sys/bus/pci/devices/0000:01:00.0/class":   file("0x030200\n"),
			"sys/bus/pci/devices/0000:01:00.0/vendor":  file("0x10de\n"),
			"sys/bus/pci/devices/0000:3b:00.0/class":   file("0x020700\n"),
			"sys/bus/pci/devices/0000:3b:00.0/config":  config(relaxedOrder, 0),
			"sys/bus/pci/devices/0000:00:01.0/class":   file("0x060400\n"),
			"sys/bus/pci/devices/0000:00:01.0/config":  config(0, 0),
		},
		Devices: []inventory.Device{{Name: "mlx5_0", Driver: "mlx5", PCI: "0000:3b:00.0",
			Attr: &inventory.Attributes{Features: map[string]string{"DMA-BUF registration": ""}},
			Ports: []inventory.Port{{Number: 1, State: active, LinkLayer: ethernet, ActiveMTU: 4096, MaxMTU: 4096, GIDs: []inventory.GID{
				{Index: 0, GID: "fe80::1", Type: roceV2, NetDev: "eth0"}, {Index: 1, GID: "::ffff:10.0.0.1", Type: roceV2, NetDev: "eth0"}}}}}},
		CanUse: func(string) error { return nil }, MemLock: ^uint64(0), ShmSize: 8 << 30, Namespaces: "shared",
	}
}

// softroce is a device in user space with nothing wrong.
func softroce() inventory.Device {
	return inventory.Device{Name: "soft0", Driver: "softroce", Software: true, Ports: []inventory.Port{{Number: 1, State: active, LinkLayer: ethernet,
		ActiveMTU: 4096, MaxMTU: 4096, GIDs: []inventory.GID{{GID: "::ffff:10.0.0.2", Type: roceV2, NetDev: "eth0"}}}}}
}

func TestHealthy(t *testing.T) {
	all := Examine(healthy())
	if len(all) != len(checks) {
		t.Errorf("%d findings of %d checks", len(all), len(checks))
	}
	for _, f := range all {
		if f.Level != Fine || f.Text == "" {
			t.Errorf("%+v", f)
		}
	}
}

// On a machine with nothing each problem says what to do, in an order that can be followed: what comes first is what the rest needs.
func TestMachineWithNothing(t *testing.T) {
	w := &World{Root: fstest.MapFS{}, CanUse: func(string) error { return syscall.ENOENT }, MemLock: 8 << 10}
	all := Examine(w)
	var steps []string
	for _, f := range all {
		if f.Level == Problem && f.Remedy == "" {
			t.Errorf("nothing to do about %+v", f)
		}
		if absent := map[string]bool{"nodes": true, "ports": true, "GIDs": true, "MTU": true, "RoCE settings": true}; absent[f.Check] && f.Level != Unknown {
			t.Errorf("of what is not there: %+v", f)
		}
		if f.Level == Problem {
			steps = append(steps, f.Check)
		}
	}
	if got := strings.Join(steps, " "); got != "devices modules modules memlock" || Problems(all) != 4 {
		t.Errorf("%s: %+v", got, all)
	}
}

// Each planted fault is found, with its place and what to do, and nothing else is.
func TestPlanted(t *testing.T) {
	port := func(w *World) *inventory.Port { return &w.Devices[0].Ports[0] }
	root := func(w *World) fstest.MapFS { return w.Root.(fstest.MapFS) }
	for name, c := range map[string]struct {
		plant    func(*World)
		check    string
		level    Level
		on, text string
		noRemedy bool
		blind    string // a check that has nothing to look at then
	}{
		"no device":      {plant: func(w *World) { w.Devices = []inventory.Device{softroce()} }, check: "devices", level: Problem, text: "shows no RDMA device"},
		"list broken":    {plant: func(w *World) { w.ListError = errors.New("netlink: no") }, check: "devices", level: Problem, text: "netlink: no"},
		"cannot be used": {plant: func(w *World) { w.Devices[0].Problem = "EACCES" }, check: "devices", level: Problem, on: "mlx5_0", text: "EACCES"},
		"softroce beside": {plant: func(w *World) {
			w.Devices = append(w.Devices, inventory.Device{Name: "soft0", Driver: "softroce", Problem: "EADDRINUSE"})
		}, check: "devices", level: Hint, on: "soft0", text: "EADDRINUSE"},
		"only softroce": {plant: func(w *World) { w.Devices[0].Driver = "softroce" }, check: "devices", level: Problem, text: "no RDMA device"},
		"module": {plant: func(w *World) {
			for name := range root(w) {
				if strings.Contains(name, "ib_uverbs") || strings.Contains(name, "infiniband_verbs") {
					delete(root(w), name)
				}
			}
		}, check: "modules", level: Problem, on: "ib_uverbs", text: "not loaded", blind: "nodes"},
		"node missing":    {plant: func(w *World) { delete(root(w), "dev/infiniband/uverbs0") }, check: "nodes", level: Problem, on: "/dev/infiniband/uverbs0", text: "missing"},
		"node refused":    {plant: func(w *World) { w.CanUse = func(string) error { return syscall.EACCES } }, check: "nodes", level: Problem, on: "/dev/infiniband/uverbs0", text: "permission denied"},
		"port down":       {plant: func(w *World) { port(w).State = "DOWN" }, check: "ports", level: Problem, on: "mlx5_0/1", text: "DOWN"},
		"port down on IB": {plant: func(w *World) { port(w).State, port(w).LinkLayer = "INIT", "InfiniBand" }, check: "ports", level: Problem, on: "mlx5_0/1", text: "INIT"},
		"port silent":     {plant: func(w *World) { port(w).Problem = "EIO" }, check: "ports", level: Problem, on: "mlx5_0/1", text: "EIO"},
		"no GID":          {plant: func(w *World) { port(w).GIDs = nil }, check: "GIDs", level: Problem, on: "mlx5_0/1", text: "no GID"},
		"link-local":      {plant: func(w *World) { port(w).GIDs = port(w).GIDs[:1] }, check: "GIDs", level: Problem, on: "mlx5_0/1", text: "link-local"},
		"RoCE v1": {plant: func(w *World) {
			for i := range port(w).GIDs {
				port(w).GIDs[i].Type = "IB/RoCE v1"
			}
		}, check: "GIDs", level: Problem, on: "mlx5_0/1", text: "RoCE v1 only"},
		"other namespace": {plant: func(w *World) {
			for i := range port(w).GIDs {
				port(w).GIDs[i].NetDev = ""
			}
		}, check: "GIDs", level: Hint, on: "mlx5_0/1", text: "another network namespace"},
		"many addresses": {plant: func(w *World) {
			for _, a := range []string{"2001:db8::1", "2001:db8::2"} {
				port(w).GIDs = append(port(w).GIDs, inventory.GID{GID: a, Type: roceV2, NetDev: "eth0"})
			}
		}, check: "GIDs", level: Hint, on: "mlx5_0/1", text: "3 addresses"},
		"small packets":         {plant: func(w *World) { port(w).ActiveMTU = 1024 }, check: "MTU", level: Hint, on: "mlx5_0/1", text: "would hold 4096"},
		"small frames":          {plant: func(w *World) { root(w)["sys/class/net/eth0/mtu"] = file("1500"); port(w).ActiveMTU = 1024 }, check: "MTU", level: Hint, on: "mlx5_0/1", text: "larger ones cost less"},
		"tiny frames":           {plant: func(w *World) { root(w)["sys/class/net/eth0/mtu"] = file("300") }, check: "MTU", level: Problem, on: "mlx5_0/1", text: "holds no RoCE packet"},
		"memlock":               {plant: func(w *World) { w.MemLock = 64 << 10 }, check: "memlock", level: Problem, text: "64 KiB"},
		"memlock, some":         {plant: func(w *World) { w.MemLock = 64 << 20 }, check: "memlock", level: Hint, text: "64 MiB"},
		"exclusive":             {plant: func(w *World) { w.Namespaces = "exclusive" }, check: "namespaces", level: Hint, text: "one network namespace"},
		"namespaces":            {plant: func(w *World) { w.Namespaces = "" }, check: "namespaces", level: Unknown, text: "does not tell", noRemedy: true},
		"shm of a docker":       {plant: func(w *World) { w.ShmSize = 64 << 20 }, check: "shared memory", level: Hint, on: "/dev/shm", text: "64 MiB"},
		"no shm":                {plant: func(w *World) { w.ShmSize = 0 }, check: "shared memory", level: Hint, on: "/dev/shm", text: "there is none"},
		"no huge pages":         {plant: func(w *World) { root(w)["proc/meminfo"] = file("HugePages_Total:       0\n") }, check: "huge pages", level: Hint, text: "none is set aside"},
		"no proc":               {plant: func(w *World) { delete(root(w), "proc/meminfo") }, check: "huge pages", level: Unknown, on: "/proc/meminfo", text: "not exist", noRemedy: true},
		"no word of huge pages": {plant: func(w *World) { root(w)["proc/meminfo"] = file("MemTotal: 1 kB\n") }, check: "huge pages", level: Unknown, on: "/proc/meminfo", text: "does not tell", noRemedy: true},
		"no peer memory": {plant: func(w *World) {
			delete(root(w), "sys/module/nvidia_peermem/version")
			w.Devices[0].Attr.Features["DMA-BUF registration"] = "no"
		}, check: "GPUDirect", level: Problem, text: "staged"},
		"no MPS":             {plant: func(w *World) { delete(root(w), "tmp/nvidia-mps/control") }, check: "GPU sharing", level: Hint, text: "take turns"},
		"MPS somewhere else": {plant: func(w *World) { w.MPSPipe = "run/mps" }, check: "GPU sharing", level: Hint, text: "move data by copies"},
		"ACS":                {plant: func(w *World) { root(w)["sys/bus/pci/devices/0000:00:01.0/config"] = config(0, acsRedirect) }, check: "PCI", level: Hint, on: "0000:00:01.0", text: "up to the processor"},
		"ACS not readable":   {plant: func(w *World) { root(w)["sys/bus/pci/devices/0000:00:01.0/config"].Data = make([]byte, 64) }, check: "PCI", level: Unknown, on: "ACS", text: "as root", noRemedy: true},
		"IOMMU":              {plant: func(w *World) { root(w)["proc/cmdline"] = file("quiet") }, check: "PCI", level: Hint, on: "IOMMU", text: "translates"},
		"relaxed ordering":   {plant: func(w *World) { root(w)["sys/bus/pci/devices/0000:3b:00.0/config"] = config(0, 0) }, check: "PCI", level: Hint, on: "0000:3b:00.0", text: "relaxed ordering"},
		"ECN":                {plant: func(w *World) { root(w)["sys/class/net/eth0/ecn/roce_np/enable/3"] = file("0") }, check: "RoCE settings", level: Hint, on: "mlx5_0/1", text: "ECN is off"},
		"PFC":                {plant: func(w *World) { root(w)["sys/class/net/eth0/qos/pfc"] = file("0,0,0,0,0,0,0,0") }, check: "RoCE settings", level: Hint, on: "mlx5_0/1", text: "PFC is off"},
	} {
		t.Run(name, func(t *testing.T) {
			w := healthy()
			c.plant(w)
			found := 0
			for _, f := range Examine(w) {
				if f.Level == Fine || f.Level == Unknown && f.Check == c.blind {
					continue
				}
				if f.Check != c.check || f.Level != c.level || f.On != c.on || !strings.Contains(f.Text, c.text) || (f.Remedy == "") != c.noRemedy {
					t.Errorf("%+v", f)
				}
				found++
			}
			if found != 1 {
				t.Errorf("%d findings", found)
			}
		})
	}
}

// Broken configuration spaces end.
func TestCapabilitiesInACircle(t *testing.T) {
	b := make([]byte, 4096)
	b[capPointer] = 0x40
	b[0x41] = 0x40
	binary.LittleEndian.PutUint32(b[firstExtended:], firstExtended<<20)
	if at := express(b); at != 0 {
		t.Errorf("found at %d", at)
	}
	if at := extended(b, extendedACS); at != 0 {
		t.Errorf("found at %d", at)
	}
	for n := range 80 {
		express(b[:n])
		extended(b[:n], extendedACS)
	}
}

// FuzzConfig walks capabilities of whatever a configuration space has.
func FuzzConfig(f *testing.F) {
	f.Add(config(relaxedOrder, acsRedirect).Data)
	f.Add(make([]byte, 64))
	f.Fuzz(func(t *testing.T, b []byte) {
		if at := express(b); at < 0 || at > len(b) {
			t.Errorf("capability at %d of %d", at, len(b))
		}
		if at := extended(b, extendedACS); at < 0 || at > len(b) {
			t.Errorf("capability at %d of %d", at, len(b))
		}
		w := healthy()
		for name := range w.Root.(fstest.MapFS) {
			if strings.HasSuffix(name, "/config") {
				w.Root.(fstest.MapFS)[name] = &fstest.MapFile{Data: b}
			}
		}
		Examine(w)
	})
}
