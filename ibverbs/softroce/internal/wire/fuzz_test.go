package wire_test

import (
	"bytes"
	"testing"

	"github.com/purerdma/purerdma/ibverbs/softroce/internal/wire"
)

// headers are the kinds of packets by the headers they have: one fuzz target
// for each, so that each gets its own corpus.
var headers = map[string][]wire.Opcode{
	"BTH":          {wire.RCSendFirst, wire.RCSendMiddle, wire.RCSendLast, wire.RCSendOnly, wire.RCWriteMiddle, wire.UCSendOnly, wire.RCReadResponseMiddle, wire.CNP},
	"RETH":         {wire.RCWriteFirst, wire.RCWriteOnly, wire.RCWriteOnlyImm, wire.RCReadRequest, wire.UCWriteOnlyImm},
	"AETH":         {wire.RCAck, wire.RCReadResponseFirst, wire.RCReadResponseLast, wire.RCReadResponseOnly},
	"AtomicETH":    {wire.RCCompareSwap, wire.RCFetchAdd},
	"AtomicAckETH": {wire.RCAtomicAck},
	"ImmDt":        {wire.RCSendLastImm, wire.RCSendOnlyImm, wire.RCWriteLastImm, wire.UCSendOnlyImm, wire.UDSendOnlyImm},
	"IETH":         {wire.RCSendLastInv, wire.RCSendOnlyInv},
	"DETH":         {wire.UDSendOnly, wire.UDSendOnlyImm},
}

func FuzzBTH(f *testing.F)          { fuzz(f, "BTH") }
func FuzzRETH(f *testing.F)         { fuzz(f, "RETH") }
func FuzzAETH(f *testing.F)         { fuzz(f, "AETH") }
func FuzzAtomicETH(f *testing.F)    { fuzz(f, "AtomicETH") }
func FuzzAtomicAckETH(f *testing.F) { fuzz(f, "AtomicAckETH") }
func FuzzImmDt(f *testing.F)        { fuzz(f, "ImmDt") }
func FuzzIETH(f *testing.F)         { fuzz(f, "IETH") }
func FuzzDETH(f *testing.F)         { fuzz(f, "DETH") }

// fuzz: no bytes make Parse or a view panic; what Parse takes, Make and the
// views write again to the same bytes.
func fuzz(f *testing.F, header string) {
	for _, op := range headers[header] {
		for _, n := range []int{0, 3, 16} {
			if op.HasData() || n == 0 {
				f.Add(byte(op), wire.Make(make([]byte, 128), op, n).Bytes()[1:])
			}
		}
		f.Add(byte(op), make([]byte, 14))
		f.Add(byte(op), bytes.Repeat([]byte{0xff}, 75))
	}
	for _, p := range golden(f) {
		f.Add(p.pkt[0], p.pkt[1:])
	}
	f.Fuzz(func(t *testing.T, op byte, rest []byte) {
		pkt := append([]byte{op}, rest...)
		p, err := wire.Parse(pkt)
		if err != nil {
			if r, ok := err.(wire.Reason); !ok || int(r) >= wire.Reasons {
				t.Fatalf("error %v is no reason", err)
			}
			return
		}
		again := wire.Make(make([]byte, len(pkt)), p.Opcode(), len(p.Payload()))
		if len(again.Bytes()) != len(pkt) {
			t.Fatalf("%d bytes laid out as %d", len(pkt), len(again.Bytes()))
		}
		rewrite(again, p)
		same(t, again, p)
		for _, path := range []wire.Path{wire.NewPath(srcV4, dstV4), wire.NewPath(srcV6, dstV6)} {
			path.Check(pkt, 0)
			path.Seal(pkt, 9)
			if !path.Verify(pkt, 9) {
				t.Fatal("sealed, and not right")
			}
		}
	})
}

// rewrite writes to q what the views of p say.
func rewrite(q, p wire.Packet) {
	h := p.BTH()
	q.BTH().Put(h.Opcode(), h.Flags(), h.PKey(), h.QPN(), h.PSN())
	if v := p.RETH(); v != nil {
		q.RETH().Put(v.VA(), v.RKey(), v.Length())
	}
	if v := p.AETH(); v != nil {
		q.AETH().Put(v.Syndrome(), v.MSN())
	}
	if v := p.AtomicETH(); v != nil {
		q.AtomicETH().Put(v.VA(), v.RKey(), v.SwapOrAdd(), v.Compare())
	}
	if v := p.AtomicAckETH(); v != nil {
		q.AtomicAckETH().Put(v.Original())
	}
	if v := p.ImmDt(); v != nil {
		q.ImmDt().Put(v.Imm())
	}
	if v := p.IETH(); v != nil {
		q.IETH().Put(v.RKey())
	}
	if v := p.DETH(); v != nil {
		q.DETH().Put(v.QKey(), v.SrcQPN())
	}
	copy(q.Payload(), p.Payload())
}

// same compares all that is not reserved, padding or ICRC.
func same(t *testing.T, q, p wire.Packet) {
	t.Helper()
	a, b := bytes.Clone(q.Bytes()), bytes.Clone(p.Bytes())
	for _, x := range [][]byte{a, b} {
		x[4] &= 0xc0
		x[8] &= 0x80
		end := p.Opcode().HeaderSize() + len(p.Payload())
		clear(x[end:])
		if p.DETH() != nil {
			x[wire.BTHSize+4] = 0
		}
		if p.Opcode() == wire.CNP {
			clear(x[wire.BTHSize:])
		}
	}
	if !bytes.Equal(a, b) {
		t.Fatalf("%v\nread    %x\nwritten %x", p.Opcode(), b, a)
	}
}
