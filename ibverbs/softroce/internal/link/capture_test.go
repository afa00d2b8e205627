package link

import (
	"bytes"
	"encoding/binary"
	"errors"
	"net/netip"
	"testing"
	"time"

	"github.com/purerdma/purerdma/ibverbs/softroce/internal/wire"
)

// captured is one packet of a file.
type captured struct {
	time  time.Time
	ip    []byte
	flags uint32
}

// readCapture reads a pcapng file as strictly as the format says.
func readCapture(t testing.TB, file []byte) (packets []captured) {
	t.Helper()
	for at := 0; at < len(file); {
		kind, size := ne.Uint32(file[at:]), int(ne.Uint32(file[at+4:]))
		if size%4 != 0 || at+size > len(file) || ne.Uint32(file[at+size-4:]) != uint32(size) {
			t.Fatalf("block %#x at %d has length %d", kind, at, size)
		}
		body := file[at+8 : at+size-4]
		switch {
		case at == 0:
			if kind != blockSection || ne.Uint32(body) != byteOrder || ne.Uint16(body[4:]) != 1 {
				t.Fatalf("section header %x", file[:size])
			}
		case kind == blockInterface:
			if ne.Uint16(body) != linkTypeRaw || !bytes.Contains(body, []byte("soft7")) {
				t.Fatalf("interface %x", body)
			}
		case kind == blockPacket:
			n := int(ne.Uint32(body[12:]))
			if int(ne.Uint32(body[16:])) != n {
				t.Fatal("a packet was cut")
			}
			options := body[20+(n+3)&^3:]
			if len(options) != 12 || ne.Uint32(options[8:]) != 0 {
				t.Fatalf("options %x", options)
			}
			packets = append(packets, captured{
				time.Unix(0, int64(uint64(ne.Uint32(body[4:]))<<32|uint64(ne.Uint32(body[8:])))),
				body[20 : 20+n], ne.Uint32(options[4:]),
			})
		default:
			t.Fatalf("block %#x", kind)
		}
		at += size
	}
	return packets
}

func TestCapture(t *testing.T) {
	for _, addrs := range [][2]string{{"10.0.0.1", "10.0.0.2"}, {"fd00::1", "fd00::2"}} {
		s := NewSim(SimConfig{})
		a, _ := s.Listen(netip.MustParseAddr(addrs[0]))
		b, _ := s.Listen(netip.MustParseAddr(addrs[1]))
		var fileA, fileB bytes.Buffer
		ca, errA := NewCapture(a, &fileA, "soft7")
		cb, errB := NewCapture(b, &fileB, "soft7")
		if err := errors.Join(errA, errB); err != nil {
			t.Fatal(err)
		}
		src := a.Source(5)
		path := wire.NewPath(src, b.LocalAddr())
		d := stretch(b.LocalAddr(), 0, 5, 101)
		d.SrcPort, d.TOS = src.Port(), 0x6a
		for k := range d.Len() {
			path.Seal(d.Segment(k), uint16(k))
		}
		before := time.Now()
		sendAll(t, ca, d)
		if psns, _ := drain(t, cb); len(psns) != 5 {
			t.Fatalf("%v came", psns)
		}
		sent, got := readCapture(t, fileA.Bytes()), readCapture(t, fileB.Bytes())
		if len(sent) != 5 || len(got) != 5 {
			t.Fatalf("%d and %d packets captured", len(sent), len(got))
		}
		for k := range sent {
			if sent[k].flags != flagOutbound || got[k].flags != flagInbound || !bytes.Equal(sent[k].ip, got[k].ip) {
				t.Errorf("packet %d\nsent %x\ngot  %x", k, sent[k].ip, got[k].ip)
			}
			if d := sent[k].time.Sub(before); d < 0 || d > time.Minute {
				t.Errorf("time %v", sent[k].time)
			}
			checkIP(t, got[k].ip, src, b.LocalAddr(), uint16(k), d.Segment(k))
		}
		if err := errors.Join(ca.Close(), cb.Close()); err != nil {
			t.Error(err)
		}
	}
}

// checkIP holds a packet against what is in it, and its checksums.
func checkIP(t testing.TB, ip []byte, src, dst netip.AddrPort, id uint16, data []byte) {
	t.Helper()
	be := binary.BigEndian
	head, pseudo := 40, ip[8:40]
	if src.Addr().Is4() {
		head, pseudo = 20, ip[12:20]
		if fold(sum(0, ip[:20])) != 0xffff || be.Uint16(ip[4:]) != id || int(be.Uint16(ip[2:])) != len(ip) || ip[1] != 0x6a {
			t.Errorf("IPv4 header %x", ip[:20])
		}
	} else if int(be.Uint16(ip[4:])) != len(ip)-40 || ip[0] != 0x66 || ip[1] != 0xa0 {
		t.Errorf("IPv6 header %x", ip[:40])
	}
	udp := ip[head:]
	if fold(sum(sum(uint32(len(udp))+17, pseudo), udp)) != 0xffff {
		t.Error("UDP checksum")
	}
	if be.Uint16(udp) != src.Port() || be.Uint16(udp[2:]) != dst.Port() || int(be.Uint16(udp[4:])) != len(udp) || !bytes.Equal(udp[8:], data) {
		t.Errorf("UDP %x", udp)
	}
}

func TestCaptureRecoversTheID(t *testing.T) {
	u := listen(t, UDPConfig{})
	var file bytes.Buffer
	c, err := NewCapture(u, &file, "soft7")
	if err != nil {
		t.Fatal(err)
	}
	d := stretch(u.LocalAddr(), 0, 1, 64)
	wire.NewPath(u.LocalAddr(), u.LocalAddr()).Seal(d.Data, 0x1234) // as from a system that numbers
	sendAll(t, u, d)
	receive(t, c, 1, func(*Datagrams, []byte) {})
	p := readCapture(t, file.Bytes())
	if len(p) != 1 || binary.BigEndian.Uint16(p[0].ip[4:]) != 0x1234 {
		t.Errorf("captured %+v", p)
	}
	if !c.Up() {
		t.Error("a link that does not watch its port is not up")
	}
}

type failingWriter struct{ after int }

var errDiskFull = errors.New("disk full")

func (w *failingWriter) Write(p []byte) (int, error) {
	if w.after--; w.after < 0 {
		return 0, errDiskFull
	}
	return len(p), nil
}

func TestCaptureOutlivesItsWriter(t *testing.T) {
	_, a, b := simPair(t, SimConfig{})
	if _, err := NewCapture(a, &failingWriter{0}, ""); err != errDiskFull {
		t.Errorf("NewCapture: %v", err)
	}
	c, err := NewCapture(a, &failingWriter{1}, "")
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		sendAll(t, c, stretch(b.LocalAddr(), 0, 1, 8))
	}
	if psns, _ := drain(t, b); len(psns) != 2 {
		t.Errorf("%d packets came", len(psns))
	}
	if err := c.Close(); err != errDiskFull {
		t.Errorf("Close: %v", err)
	}
}
