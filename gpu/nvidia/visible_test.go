package nvidia

import (
	"slices"
	"testing"

	"github.com/purerdma/purerdma/gpu"
)

func TestVisible(t *testing.T) {
	machine := []gpu.DeviceInfo{
		{Index: 0, UUID: "GPU-aaaa1111-0000-0000-0000-000000000000"},
		{Index: 1, UUID: "GPU-aaaa2222-0000-0000-0000-000000000000"},
		{Index: 2, UUID: "GPU-bbbb3333-0000-0000-0000-000000000000"},
		{UUID: "MIG-cccc4444-0000-0000-0000-000000000000", MIG: true},
		{UUID: "MIG-GPU-bbbb3333-0000-0000-0000-000000000000/1/0", MIG: true},
	}
	for _, c := range []struct {
		list string
		want []int // positions in machine
	}{
		{"0,1,2", []int{0, 1, 2}},
		{"2,0", []int{2, 0}},
		{" 1 , 0 ", []int{1, 0}},
		{"", nil},
		{"-1", nil},
		{"0,-1,1", []int{0}},
		{"0,9,1", []int{0}},
		{"0,x,1", []int{0}},
		{"1,1", nil},
		{"GPU-bbbb", []int{2}},
		{"gpu-BBBB3333-0000-0000-0000-000000000000,0", []int{2, 0}},
		{"GPU-aaaa", nil}, // fits two
		{"GPU-aaaa2,GPU-aaaa1", []int{1, 0}},
		{"0,GPU-aaaa1", nil}, // the same twice
		{"GPU-", nil},
		{"MIG-cccc4444-0000-0000-0000-000000000000", []int{3}},
		{"MIG-cccc", []int{3}},
		{"MIG-GPU-bbbb3333-0000-0000-0000-000000000000/1/0", []int{4}},
		{"MIG-GPU-bbbb3333-0000-0000-0000-000000000000/2/0", nil},
		{"MIG-cccc,0", []int{3}},
		{"0,MIG-cccc", []int{3}},
		{"NoDevFiles", nil},
	} {
		got := Visible(c.list, machine)
		var uuids, want []string
		for i, d := range got {
			uuids = append(uuids, d.UUID)
			if d.Index != i {
				t.Errorf("%q: device %d has index %d", c.list, i, d.Index)
			}
		}
		for _, i := range c.want {
			want = append(want, machine[i].UUID)
		}
		if !slices.Equal(uuids, want) {
			t.Errorf("%q shows %v, want %v", c.list, uuids, want)
		}
	}
}

func TestResultText(t *testing.T) {
	if err := failure("cuMemAlloc_v2", 0, 0, ""); err != nil {
		t.Error(err)
	}
	if got, want := failure("cuX", 12345, 3, "%d bytes", 7).Error(), "cuX on GPU 3: CUDA_ERROR (12345), 7 bytes"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}
