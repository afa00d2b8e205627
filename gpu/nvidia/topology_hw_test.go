//go:build hw && linux

package nvidia

import (
	"os"
	"reflect"
	"testing"

	"github.com/purerdma/purerdma/gpu"
	"github.com/purerdma/purerdma/topo"
)

// byCUDA is the driver as builds without NVML have it.
type byCUDA struct{ driver }

func (d byCUDA) Links(device int) ([]gpu.Link, error) {
	l, err := cuda()
	if err != nil {
		return nil, err
	}
	info, err := l.device(device)
	if err != nil {
		return nil, err
	}
	return cudaLinks(l, info)
}

// The topology is the same with NVML, which builds with cgo have, and without it.
func TestHWTopology(t *testing.T) {
	devices, err := driver{}.Devices()
	if err != nil {
		t.Skip(err)
	}
	var matrices [][][]string
	sys := os.DirFS("/sys")
	for _, d := range []gpu.Driver{driver{}, byCUDA{}} {
		s, err := topo.Read(sys)
		if err != nil {
			t.Fatal(err)
		}
		if err := s.AddGPUs(sys, d); err != nil {
			t.Fatal(err)
		}
		if _, ok := s.Find("GPU0"); !ok {
			t.Errorf("the driver shows %d GPUs, the topology none: %v", len(devices), s.Devices)
		}
		matrices = append(matrices, s.Matrix())
	}
	for _, d := range devices {
		links, known := nvmlLinks(d)
		t.Logf("GPU %d at %v: NVML answers: %v, %d ends of links", d.Index, d.PCI, known, len(links))
	}
	t.Logf("%v", matrices[0])
	if !reflect.DeepEqual(matrices[0], matrices[1]) {
		t.Errorf("without NVML it is %v", matrices[1])
	}
}
