package topo

import (
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/purerdma/purerdma/gpu"
)

// machine is a sysfs with two sockets. Socket 0 has a host bridge with a switch of
// a switch, and a second host bridge; socket 1 has one.
type machine struct {
	fstest.MapFS
}

func (m machine) pci(numa int, chain ...string) string {
	at := "devices/" + strings.Join(chain, "/")
	m.MapFS[at+"/numa_node"] = &fstest.MapFile{Data: fmt.Appendf(nil, "%d\n", numa)}
	m.MapFS["bus/pci/devices/"+chain[len(chain)-1]] = link("../../../" + at)
	return at
}

func (m machine) nic(name string, numa int, chain ...string) {
	at := m.pci(numa, chain...)
	m.MapFS[at+"/infiniband/"+name+"/device"] = link("../../../" + chain[len(chain)-1])
	m.MapFS["class/infiniband/"+name] = link("../../" + at + "/infiniband/" + name)
}

func link(to string) *fstest.MapFile {
	return &fstest.MapFile{Data: []byte(to), Mode: fs.ModeSymlink | 0o777}
}

const (
	root0   = "pci0000:00"
	port    = "0000:00:01.0"
	up1     = "0000:01:00.0"
	down1a  = "0000:02:00.0"
	down1b  = "0000:02:01.0"
	up2     = "0000:03:00.0"
	down2a  = "0000:04:00.0"
	down2b  = "0000:04:01.0"
	otherPt = "0000:00:02.0"
)

// build is a machine with four NICs and three GPUs.
func build() (machine, gpus) {
	m := machine{fstest.MapFS{}}
	m.nic("mlx5_0", 0, root0, port, up1, down1a, "0000:05:00.0")
	m.nic("mlx5_1", 0, root0, port, up1, down1a, "0000:05:00.1") // second port of the same card
	m.nic("mlx5_2", 0, root0, otherPt, "0000:08:00.0")
	m.nic("mlx5_3", 1, "pci0000:80", "0000:80:01.0", "0000:81:00.0")
	m.MapFS["devices/virtual/infiniband/rxe0/node_type"] = &fstest.MapFile{Data: []byte("1: CA\n")}
	m.MapFS["class/infiniband/rxe0"] = link("../../devices/virtual/infiniband/rxe0")
	m.pci(0, root0, port, up1, down1b, up2, down2a, "0000:06:00.0")
	m.pci(0, root0, port, up1, down1b, up2, down2b, "0000:07:00.0")
	m.pci(0, "pci0000:40", "0000:40:01.0", "0000:41:00.0")
	return m, gpus{devices: []gpu.DeviceInfo{{PCI: bus("0000:06:00.0")}, {Index: 1, PCI: bus("0000:07:00.0")}, {Index: 2, PCI: bus("0000:41:00.0")}}}
}

func bus(s string) gpu.BusID {
	b, err := gpu.ParseBusID(s)
	if err != nil {
		panic(err)
	}
	return b
}

type gpus struct {
	gpu.Driver
	devices []gpu.DeviceInfo
	links   map[int][]gpu.Link
}

func (g gpus) Devices() ([]gpu.DeviceInfo, error) { return g.devices, nil }
func (g gpus) Links(i int) ([]gpu.Link, error)    { return g.links[i], nil }

func read(t *testing.T, m machine, g gpus) *System {
	t.Helper()
	s, err := Read(m)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.AddGPUs(m, g); err != nil {
		t.Fatal(err)
	}
	return s
}

func TestPaths(t *testing.T) {
	m, g := build()
	plain := read(t, m, g)
	g.links = map[int][]gpu.Link{
		0: {{Kind: "NVLink", To: bus("0000:41:00.0"), ToGPU: true, Count: 2}},
		2: {{Kind: "NVLink", To: bus("0000:06:00.0"), ToGPU: true, Count: 2}, {Kind: "NVLink", To: bus("0000:07:00.0"), ToGPU: true, Count: 1}},
		1: {{Kind: "NVLink", To: bus("0000:41:00.0"), ToGPU: true, Count: 1}},
	}
	linked := read(t, m, g)
	for _, c := range []struct {
		a, b          string
		plain, linked string
	}{
		{"mlx5_0", "mlx5_0", "X", "X"},
		{"mlx5_0", "mlx5_1", "PIX", "PIX"},
		{"mlx5_0", "mlx5_2", "PHB", "PHB"},
		{"mlx5_0", "mlx5_3", "SYS", "SYS"},
		{"mlx5_0", "rxe0", "DIS", "DIS"},
		{"mlx5_0", "GPU0", "PXB", "PXB"},
		{"GPU0", "GPU1", "PIX", "NVB"}, // see below: over GPU2
		{"GPU0", "GPU2", "NODE", "NV2"},
		{"GPU2", "mlx5_0", "NODE", "PXN"},
		{"GPU2", "mlx5_2", "NODE", "NODE"},
		{"GPU1", "mlx5_3", "SYS", "SYS"},
	} {
		for _, x := range []struct {
			s    *System
			want string
		}{{plain, c.plain}, {linked, c.linked}} {
			a, _ := x.s.Find(c.a)
			b, _ := x.s.Find(c.b)
			if ab, ba := x.s.word(a, b), x.s.word(b, a); ab != x.want || ba != x.want {
				t.Errorf("%s to %s is %s, back %s; want %s", c.a, c.b, ab, ba, x.want)
			}
		}
	}
	g0, _ := linked.Find("GPU0")
	g1, _ := linked.Find("GPU1")
	if mid, ok := linked.Between(g1, g0); !ok || mid.Name != "GPU2" {
		t.Errorf("between GPU1 and GPU0 lies %q, %v", mid.Name, ok)
	}
	g0, _ = plain.Find("GPU0")
	if mid, ok := plain.Between(g1, g0); ok {
		t.Errorf("without NVLink %q lies between GPU1 and GPU0", mid.Name)
	}
	var near []string
	for _, d := range plain.Nearest(g0, NIC) {
		near = append(near, d.Name)
	}
	if want := []string{"mlx5_0", "mlx5_1", "mlx5_2", "mlx5_3", "rxe0"}; !slices.Equal(near, want) {
		t.Errorf("NICs from GPU0: %v, want %v", near, want)
	}
}

// One more bridge than a switch has makes PXB of PIX; of places that no NUMA node is known of, none is taken for the same; mlx5_10 comes
// behind mlx5_2, and what has no place last.
func TestEdgesOfPaths(t *testing.T) {
	m := machine{fstest.MapFS{}}
	m.nic("mlx5_2", -1, root0, port, up1, down1a, "0000:05:00.0")
	m.nic("mlx5_3", -1, root0, port, up1, down1b, "0000:06:00.0")
	m.nic("mlx5_10", -1, root0, port, up1, "0000:02:02.0", "0000:07:00.0", "0000:08:00.0") // behind a bridge of its own
	m.nic("mlx5_11", -1, "pci0000:40", "0000:40:01.0", "0000:41:00.0")
	m.MapFS["class/infiniband/rxe0"] = link("../../devices/virtual/infiniband/rxe0")
	s, err := Read(m)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, d := range s.Devices {
		names = append(names, d.Name)
	}
	if want := []string{"mlx5_2", "mlx5_3", "mlx5_10", "mlx5_11", "rxe0"}; !slices.Equal(names, want) {
		t.Fatalf("%v, want %v", names, want)
	}
	for i, want := range []string{"X", "PIX", "PXB", "SYS", "DIS"} {
		if got, back := s.Matrix()[0][i], s.Matrix()[i][0]; got != want || back != want {
			t.Errorf("%s to %s is %s, back %s; want %s", names[0], names[i], got, back, want)
		}
	}
}

// All GPUs on a switch of NVLink reach each other by it, with all their lanes.
func TestSwitch(t *testing.T) {
	m, g := build()
	toSwitch := []gpu.Link{{Kind: "NVLink", Count: 18}}
	g.links = map[int][]gpu.Link{0: toSwitch, 2: toSwitch}
	s := read(t, m, g)
	for _, c := range []struct{ row, column int }{{5, 7}, {7, 5}} {
		if got := s.Matrix()[c.row][c.column]; got != "NV18" {
			t.Errorf("%s to %s is %s", s.Devices[c.row].Name, s.Devices[c.column].Name, got)
		}
	}
}

// Without a driver GPUs are found by PCI, in its order, and nothing else is taken
// for one.
func TestGPUsByPCI(t *testing.T) {
	m, _ := build()
	for address, what := range map[string][2]string{"0000:41:00.0": {"0x030200", "0x10de"}, "0000:06:00.0": {"0x030000", "0x1002"},
		"0000:07:00.0": {"0x030000", "0x1a03"}, "0000:05:00.0": {"0x020700", "0x10de"}} {
		at, err := resolve(m, "bus/pci/devices/"+address)
		if err != nil {
			t.Fatal(err)
		}
		m.MapFS[at+"/class"], m.MapFS[at+"/vendor"] = &fstest.MapFile{Data: []byte(what[0] + "\n")}, &fstest.MapFile{Data: []byte(what[1] + "\n")}
	}
	s, err := Read(m)
	if err != nil {
		t.Fatal(err)
	}
	g0, ok0 := s.Find("GPU0")
	g1, ok1 := s.Find("GPU1")
	if _, more := s.Find("GPU2"); !ok0 || !ok1 || more || g0.PCI != bus("0000:06:00.0") || g1.PCI != bus("0000:41:00.0") {
		t.Errorf("%+v", s.Devices)
	}
	if p := s.Path(g0, g1); p != NODE {
		t.Errorf("%v", p)
	}
}

func TestInstancesOfOneGPU(t *testing.T) {
	m, g := build()
	g.devices = append(g.devices, gpu.DeviceInfo{Index: 3, PCI: bus("0000:41:00.0"), MIG: true})
	s := read(t, m, g)
	a, _ := s.Find("GPU2")
	b, _ := s.Find("GPU3")
	if got := s.word(a, b); got != "LOC" {
		t.Errorf("two instances: %s", got)
	}
}

// One broken entry does not hide the others.
func TestBroken(t *testing.T) {
	m, _ := build()
	m.MapFS["class/infiniband/mlx5_9"] = &fstest.MapFile{Data: []byte("no link")}
	s, err := Read(m)
	if err == nil || !strings.Contains(err.Error(), "mlx5_9") || len(s.Devices) != 6 {
		t.Errorf("%d devices, %v", len(s.Devices), err)
	}
	if s, err := Read(fstest.MapFS{}); err != nil || len(s.Devices) != 0 {
		t.Errorf("a machine without RDMA: %v, %v", s.Devices, err)
	}
	missing := gpus{devices: []gpu.DeviceInfo{{PCI: bus("0000:99:00.0")}}}
	if err := s.AddGPUs(m, missing); err == nil || !strings.Contains(err.Error(), "GPU0") {
		t.Errorf("a GPU without a place: %v", err)
	}
}

// FuzzRead has one entry of sysfs say anything: nothing panics, and a device elsewhere is where it was.
func FuzzRead(f *testing.F) {
	whole, _ := build()
	var names []string
	for name := range whole.MapFS {
		if !strings.Contains(name, "mlx5_3") && !strings.Contains(name, "pci0000:80") && !strings.Contains(name, "0000:81:00.0") {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	for i, text := range []string{"", "-1", "99999999999999999999", "../../..", "/", "0x030200", "../../../devices/pci0000:80/0000:80:01.0/0000:81:00.0"} {
		f.Add(i, text, i%2 == 0)
	}
	f.Fuzz(func(t *testing.T, which int, text string, isLink bool) {
		m := machine{fstest.MapFS{}}
		for name, file := range whole.MapFS {
			m.MapFS[name] = file
		}
		changed := names[uint(which)%uint(len(names))]
		m.MapFS[changed] = &fstest.MapFile{Data: []byte(text)}
		if isLink {
			m.MapFS[changed] = link(text)
		}
		s, err := Read(m)
		if s == nil {
			t.Fatalf("%s of %q: %v", changed, text, err)
		}
		s.Matrix()
		if d, ok := s.Find("mlx5_3"); !ok || d.PCI != bus("0000:81:00.0") || d.NUMA != 1 {
			t.Errorf("%s of %q moves another device: %+v", changed, text, d)
		}
	})
}

func TestParseLevel(t *testing.T) {
	for text, want := range map[string]Path{"LOC": LOC, "nvl": NVL, "PIX": PIX, "PXB": PXB, "PHB": NODE, "SYS": SYS, "0": LOC, "1": PIX, "2": PXB,
		"3": NODE, "4": SYS, "5": SYS} {
		if got, err := ParseLevel(text); got != want || err != nil {
			t.Errorf("%s is %v, %v", text, got, err)
		}
	}
	for _, bad := range []string{"", "6", "DIS", "near"} {
		if _, err := ParseLevel(bad); err == nil {
			t.Errorf("%q was taken", bad)
		}
	}
}

// Every word of a matrix is explained.
func TestLegend(t *testing.T) {
	var words []string
	for _, l := range Legend() {
		words = append(words, l[0])
	}
	for p := LOC; p <= DIS; p++ {
		if p != NVL && !slices.Contains(words, p.String()) {
			t.Errorf("%v is not explained", p)
		}
	}
}
