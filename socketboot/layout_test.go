package socketboot

import (
	"errors"
	"net/netip"
	"strings"
	"testing"
)

func TestLayoutFor(t *testing.T) {
	for v, want := range map[string]Layout{
		"2.24.3": Layout225, "2.25.1": Layout225, "v2.25.1-1": Layout225, "2.25.1-1": Layout225,
		"2.26.2": Layout226, "2.26.3": Layout226, "2.26.6": Layout226,
		"2.27.3": Layout227, "2.27.7": Layout227, "2.28.3": Layout227, "2.28.9": Layout227,
		"2.29.2": Layout229, "2.29.3": Layout229, "2.29.7": Layout2297,
		"2.30.3": Layout230, "2.30.7": Layout230,
	} {
		if got, err := LayoutFor(v); err != nil || got != want {
			t.Errorf("%s: %s, %v; want %s", v, got, err, want)
		}
	}
	for v, say := range map[string]string{
		"2.23.4": "no device list", "1.0.0": "no device list", "2.26.7": "2.26.2-2.26.6 and 2.27.3-2.28.9", "2.29.5": "2.29.2-2.29.3 and 2.29.7",
		"2.30.8": "2.30.3-2.30.7", "3.0.0": "newest", "": "form", "2.25": "form", "2.25.1.0": "form", "2.25.x": "form", "2.300.1": "form",
	} {
		if got, err := LayoutFor(v); err == nil || !strings.Contains(err.Error(), say) {
			t.Errorf("%s: %s, %v", v, got, err)
		}
	}
}

func TestLayouts(t *testing.T) {
	for l, want := range map[Layout]struct {
		name                    string
		devs, devList, metadata int
		tc, imm, records        bool
	}{
		Layout225:  {"2.24.3-2.25.1", 4, 20, 3576, false, false, false},
		Layout226:  {"2.26.2-2.26.6", 4, 20, 3584, true, false, false},
		Layout227:  {"2.27.3-2.28.9", 4, 20, 3648, true, false, false},
		Layout229:  {"2.29.2-2.29.3", 4, 20, 3648, true, true, false},
		Layout2297: {"2.29.7", 4, 20, 3744, true, true, true},
		Layout230:  {"2.30.3-2.30.7", 8, 37, 4576, true, true, true},
	} {
		if l.String() != want.name || l.MaxDevs() != want.devs || l.DevListLen() != want.devList || l.MetadataLen() != want.metadata ||
			l.HasTrafficClass() != want.tc || l.ImmBigEndian() != want.imm || l.CompletionRecords() != want.records {
			t.Errorf("%s is not as tabulated", l)
		}
	}
	if Layout(99).String() != "Layout(99)" {
		t.Error("name of no layout")
	}
}

func TestHandle(t *testing.T) {
	for _, a := range []string{"192.0.2.1:4791", "[2001:db8::5]:1", "127.0.0.1:65535"} {
		addr := netip.MustParseAddrPort(a)
		h := HandleFor(addr, 77)
		if err := h.Check(); err != nil || h.Addr() != addr || h.Magic() != 77 || h.ScopeID() != 0 {
			t.Errorf("%s: %s, %d: %v", a, h.Addr(), h.Magic(), err)
		}
		long := append(h[:], make([]byte, 128)...)
		if got, err := ParseHandle(long); err != nil || got != h {
			t.Errorf("%s: parse: %v", a, err)
		}
	}
	if h := HandleFor(netip.MustParseAddrPort("[::ffff:192.0.2.1]:1"), 1); h.Addr().Addr() != netip.MustParseAddr("192.0.2.1") {
		t.Errorf("mapped address became %s", h.Addr())
	}
	good := HandleFor(netip.MustParseAddrPort("192.0.2.1:4791"), Magic)
	good[70] = 1 // from 2.30.7 on a GID is there
	if err := good.Check(); err != nil {
		t.Error(err)
	}
	for say, edit := range map[string]func(*Handle){
		"all 0":          func(h *Handle) { *h = Handle{} },
		"family 59936":   func(h *Handle) { h[0], h[1] = 0x20, 0xea },
		"family 0":       func(h *Handle) { h[0] = 0 },
		"port 0":         func(h *Handle) { h[2], h[3] = 0, 0 },
		"0.0.0.0":        func(h *Handle) { copy(h[4:8], make([]byte, 4)) },
		"224.0.2.1":      func(h *Handle) { h[4] = 224 },
		"magic 0":        func(h *Handle) { copy(h[32:40], make([]byte, 8)) },
		"bytes 40 to 63": func(h *Handle) { h[40] = 1 },
		"not 0 for 192":  func(h *Handle) { h[63] = 1 },
	} {
		h := good
		edit(&h)
		if err := h.Check(); !errors.Is(err, ErrHandle) || !strings.Contains(err.Error(), say) {
			t.Errorf("%s: %v", say, err)
		}
		if _, err := ParseHandle(h[:]); !errors.Is(err, ErrHandle) {
			t.Errorf("%s: parse: %v", say, err)
		}
	}
	if _, err := ParseHandle(good[:127]); !errors.Is(err, ErrHandle) {
		t.Errorf("short: %v", err)
	}
}
