package driver

import (
	"errors"
	"reflect"
	"strings"
	"testing"
	"unsafe"
)

// The offsets of NCCL's ncclSendMem and ncclRecvMem.
func TestMemoryLayout(t *testing.T) {
	var s SendMem
	var r RecvMem
	for name, c := range map[string]struct{ got, want uintptr }{
		"sizeof SendMem":           {unsafe.Sizeof(s), 4096},
		"SendMem.Head":             {unsafe.Offsetof(s.Head), 0},
		"SendMem.PtrExchange":      {unsafe.Offsetof(s.PtrExchange), 128},
		"SendMem.RedOpArgExchange": {unsafe.Offsetof(s.RedOpArgExchange), 136},
		"SendMem.OffsFIFO":         {unsafe.Offsetof(s.OffsFIFO), 256},
		"sizeof RecvMem":           {unsafe.Sizeof(r), 4096},
		"RecvMem.Tail":             {unsafe.Offsetof(r.Tail), 0},
		"RecvMem.ConnFIFO":         {unsafe.Offsetof(r.ConnFIFO), 128},
		"RecvMem.Flush":            {unsafe.Offsetof(r.Flush), 320},
		"sizeof ConnFIFO":          {unsafe.Sizeof(r.ConnFIFO[0]), 24},
		"ConnFIFO.Offset":          {unsafe.Offsetof(r.ConnFIFO[0].Offset), 4},
		"ConnFIFO.Size":            {unsafe.Offsetof(r.ConnFIFO[0].Size), 8},
		"ConnFIFO.Ptr":             {unsafe.Offsetof(r.ConnFIFO[0].Ptr), 16},
	} {
		if c.got != c.want {
			t.Errorf("%s is %d, want %d", name, c.got, c.want)
		}
	}
	if want := [Protocols]int{524288, 4915200, 4194304}; DefaultBuffers != want {
		t.Errorf("default buffers %v, want %v", DefaultBuffers, want)
	}
}

func example() PeerInfo {
	p := PeerInfo{Version: ProtocolVersion, Rank: 129, HostHash: 1 << 63, PIDHash: 2, ShmDev: 3, NetNS: 4026531840, UID: 1000,
		BusID: 0x4b000, ComputeCap: 90, Socket: "@purerdma-1", Net: "IB"}
	for i := range 16 {
		p.BootID[i], p.GPUUUID[i] = byte(i+1), byte(0xf0+i)
	}
	return p
}

func TestPeerInfoRoundTrip(t *testing.T) {
	full, empty := example(), PeerInfo{Version: ProtocolVersion}
	longest := full
	longest.Socket, longest.Net = strings.Repeat("s", MaxSocket), strings.Repeat("n", MaxNet)
	for _, p := range []PeerInfo{full, empty, longest} {
		b, err := p.Append([]byte("before"))
		if err != nil || len(b) != 6+PeerInfoSize {
			t.Fatalf("%d bytes, %v", len(b), err)
		}
		q, err := DecodePeerInfo(b[6:])
		if err != nil || !reflect.DeepEqual(p, q) {
			t.Errorf("%+v became %+v, %v", p, q, err)
		}
	}
}

func TestPeerInfoRefused(t *testing.T) {
	p := example()
	good, err := p.Append(nil)
	if err != nil {
		t.Fatal(err)
	}
	for want, damage := range map[string]func(b []byte) []byte{
		"255 bytes": func(b []byte) []byte { return b[:255] },
		"version 2": func(b []byte) []byte { b[0] = 2; return b },
		"rank is":   func(b []byte) []byte { b[7] = 0xff; return b },
		"net is":    func(b []byte) []byte { b[88] = '\n'; return b },
		"socket is": func(b []byte) []byte { b[106] = 0; return b },
	} {
		_, err := DecodePeerInfo(damage(append([]byte(nil), good...)))
		if !errors.Is(err, ErrPeerInfo) || !strings.Contains(err.Error(), want) {
			t.Errorf("want %q, got %v", want, err)
		}
	}
	p.Net = "sixteen letters!"
	if _, err := p.Append(nil); err == nil {
		t.Error("a name that does not fit was encoded")
	}
}

func TestIdentity(t *testing.T) {
	p, q := example(), example()
	if !p.SameHost(&q) || !p.SameProcess(&q) {
		t.Error("equal infos are not of one process")
	}
	q.HostHash++
	if p.SameHost(&q) || p.SameProcess(&q) {
		t.Error("equal pid hashes on two hosts are one process")
	}
}

func FuzzPeerInfo(f *testing.F) {
	p := example()
	b, _ := p.Append(nil)
	f.Add(b)
	f.Fuzz(func(t *testing.T, b []byte) {
		p, err := DecodePeerInfo(b)
		if err != nil {
			return
		}
		again, err := p.Append(nil)
		if err != nil {
			t.Fatal(err)
		}
		if q, err := DecodePeerInfo(again); err != nil || !reflect.DeepEqual(p, q) {
			t.Fatalf("%+v became %+v, %v", p, q, err)
		}
	})
}
