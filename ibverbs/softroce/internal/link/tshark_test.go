package link

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/purerdma/purerdma/ibverbs/softroce/internal/wire"
)

// TestTsharkReadsTheCapture: Wireshark takes a packet of each opcode for RoCE,
// finds none malformed, and reads the fields that were written.
func TestTsharkReadsTheCapture(t *testing.T) {
	tshark, err := exec.LookPath("tshark")
	if err != nil {
		t.Skip("needs tshark of Wireshark")
	}
	name := filepath.Join(t.TempDir(), "all.pcapng")
	f, err := os.Create(name)
	if err != nil {
		t.Fatal(err)
	}
	_, a, b := simPair(t, SimConfig{})
	c, err := NewCapture(a, f, "soft7")
	if err != nil {
		t.Fatal(err)
	}
	path := wire.NewPath(a.LocalAddr(), b.LocalAddr())
	var want []string
	for o := range 256 {
		op := wire.Opcode(o)
		if !op.Valid() {
			continue
		}
		n := 0
		if op.HasData() {
			n = 101
		}
		p := wire.Make(make([]byte, 256), op, n)
		psn := wire.PSN(0xfffff0).Add(uint32(o)) // across the wrap
		if op != wire.CNP {
			p.BTH().Put(op, wire.AckReq|wire.Solicited, 0x8001, 0x123456, psn)
		}
		if op.HasRETH() {
			p.RETH().Put(0x1122334455667788, 0xabcdef01, 101)
		}
		if p.AtomicETH() != nil {
			p.AtomicETH().Put(0x1122334455667788, 0xabcdef01, 7, 8)
		}
		if op.HasAETH() {
			p.AETH().Put(wire.SynAck, 0x77)
		}
		if op.HasImm() {
			p.ImmDt().Put(0x01020304)
		}
		path.Seal(p.Bytes(), 0)
		sendAll(t, c, Datagrams{Addr: b.LocalAddr(), Data: p.Bytes()})
		line := fmt.Sprintf("%d %#06x %d %d", o, p.BTH().QPN(), p.BTH().PSN(), -n&3)
		if op.HasRETH() {
			line += " 0xabcdef01 101"
		}
		if p.AtomicETH() != nil {
			line += " 0xabcdef01"
		}
		if op.HasAETH() {
			line += " 119"
		}
		if op.HasImm() {
			line += " 01020304"
		}
		want = append(want, line)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	read := func(args ...string) []string {
		out, err := exec.Command(tshark, append([]string{"-r", name}, args...)...).Output()
		if err != nil {
			t.Fatal(err)
		}
		return strings.FieldsFunc(string(out), func(r rune) bool { return r == '\n' })
	}
	for _, line := range read("-Y", "_ws.malformed || _ws.expert.severity >= 0x600000 || !infiniband") {
		t.Errorf("tshark finds fault with %s", line)
	}
	got := read("-T", "fields", "-E", "separator=/s", "-E", "occurrence=f", "-e", "infiniband.bth.opcode", "-e", "infiniband.bth.destqp",
		"-e", "infiniband.bth.psn", "-e", "infiniband.bth.padcnt", "-e", "infiniband.reth.r_key", "-e", "infiniband.reth.dmalen",
		"-e", "infiniband.aeth.msn", "-e", "infiniband.immdt")
	for i := range got {
		got[i] = strings.Join(strings.Fields(got[i]), " ")
	}
	if !slices.Equal(got, want) {
		t.Errorf("tshark reads\n%s\nwritten\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}
