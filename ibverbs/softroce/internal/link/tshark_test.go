package link

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/purerdma/purerdma/ibverbs/softroce/internal/tshark"
	"github.com/purerdma/purerdma/ibverbs/softroce/internal/wire"
)

// TestTsharkReadsTheCapture: Wireshark takes a packet of each opcode for RoCE,
// finds none malformed, and reads the fields that were written, over IPv4 and IPv6.
func TestTsharkReadsTheCapture(t *testing.T) {
	for name, ends := range map[string]int{"IPv4": 0, "IPv6": 1} {
		t.Run(name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "all.pcapng")
			f, err := os.Create(file)
			if err != nil {
				t.Fatal(err)
			}
			s := NewSim(SimConfig{})
			from, to := packetEnds[ends][0].Addr(), packetEnds[ends][1]
			l, err := s.Listen(from)
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = l.Close() }()
			c, err := NewCapture(l, f, "soft7")
			if err != nil {
				t.Fatal(err)
			}
			path := wire.NewPath(l.LocalAddr(), to)
			var sent []wire.Packet
			for o := range 256 {
				if op := wire.Opcode(o); op.Valid() {
					p := everyField(op)
					path.Seal(p.Bytes(), 0)
					sendAll(t, c, Datagrams{Addr: to, Data: p.Bytes()})
					sent = append(sent, p)
				}
			}
			if err := f.Close(); err != nil {
				t.Fatal(err)
			}
			tshark.Compare(t, file, "udp", sent)
		})
	}
}

// everyField is a packet in which each field has a value of its own.
func everyField(op wire.Opcode) wire.Packet {
	n := 0
	if op.HasData() {
		n = 98 + int(op)%4 // all pad counts
	}
	p := wire.Make(make([]byte, 256), op, n)
	f := wire.AckReq | wire.Solicited | wire.Migrated
	if op%2 == 0 {
		f = 0
	}
	if op == wire.CNP {
		f = wire.BECN
	}
	p.BTH().Put(op, f, 0x8001, 0x123456+uint32(op), wire.PSN(0xfffff0).Add(uint32(op))) // across the wrap
	if h := p.RETH(); h != nil {
		h.Put(0x1122334455667788, 0xabcdef01, 101)
	}
	if h := p.AtomicETH(); h != nil {
		h.Put(0x1122334455667780, 0xabcdef02, 0xfedcba9876543210, 0x0123456789abcdef)
	}
	if h := p.AETH(); h != nil {
		h.Put(wire.RNRNak(uint8(op)), 0x77aa11)
	}
	if h := p.AtomicAckETH(); h != nil {
		h.Put(0x8877665544332211)
	}
	if h := p.DETH(); h != nil {
		h.Put(0x81234567, 0xfedcba)
	}
	if h := p.ImmDt(); h != nil {
		h.Put(0x01020304)
	}
	if h := p.IETH(); h != nil {
		h.Put(0xa1b2c3d4)
	}
	for i := range p.Payload() {
		p.Payload()[i] = byte(i * int(op))
	}
	return p
}
