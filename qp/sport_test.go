package qp

import (
	"testing"

	"pgregory.net/rapid"
)

func TestUDPSourcePort(t *testing.T) {
	for _, tt := range []struct {
		label, local, remote uint32
		want                 uint16
	}{
		{1, 17, 18, 0xc001},
		{0x3fff, 17, 18, 0xffff},
		{0x4000, 17, 18, 0xc001},  // bit 14 folds onto bit 0
		{0x4001, 17, 18, 0xc000},  // and cancels it
		{0xfffff, 17, 18, 0xffc0}, // 0x3fff ^ 0x3f
		{0, 0x11, 0x12, 0xc132},   // 17 × 18 = 0x132
		{0, 0xffffff, 0xffffff, 0},
		{0, 0x123456, 0x654321, 0},
	} {
		got := UDPSourcePort(tt.label, tt.local, tt.remote)
		want := tt.want
		if want == 0 { // the product folded by hand: 20 bits, the next 20, the last 8
			v := uint64(tt.local) * uint64(tt.remote)
			v = v ^ v>>20
			v = v ^ v>>40
			label := v % (1 << 20)
			want = uint16(0xc000 + (label % (1 << 14)) ^ (label / (1 << 14)))
		}
		if got != want {
			t.Errorf("label %#x, QPs %#x and %#x: port %#x, want %#x", tt.label, tt.local, tt.remote, got, want)
		}
	}
}

func TestUDPSourcePortProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a, b := rapid.Uint32Max(maxQPN).Draw(t, "a"), rapid.Uint32Max(maxQPN).Draw(t, "b")
		label := rapid.Uint32Max(maxFlowLabel).Draw(t, "label")
		if UDPSourcePort(label, a, b) < minSourcePort {
			t.Error("port below 49152")
		}
		if UDPSourcePort(0, a, b) != UDPSourcePort(0, b, a) {
			t.Error("not the same in both directions")
		}
		port := rapid.Uint16Min(minSourcePort).Draw(t, "port")
		l := FlowLabelFor(port)
		if l == 0 || l > maxFlowLabel || UDPSourcePort(l, a, b) != port {
			t.Errorf("label %#x for port %d leads to %d", l, port, UDPSourcePort(l, a, b))
		}
	})
}
