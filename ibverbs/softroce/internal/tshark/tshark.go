// Package tshark is for tests: it holds what tshark of Wireshark reads in a capture
// against the packets that were sent.
package tshark

import (
	"fmt"
	"os/exec"
	"strconv"
	"strings"
	"testing"

	"github.com/purerdma/purerdma/ibverbs/softroce/internal/wire"
)

// columns are fields of Wireshark and what they are to show for a packet; a field
// that the packet does not have shows nothing.
var columns = []struct {
	field string
	want  func(p wire.Packet) string
}{
	{"infiniband.bth.opcode", func(p wire.Packet) string { return fmt.Sprint(uint8(p.Opcode())) }},
	{"infiniband.bth.se", bit(wire.Solicited)},
	{"infiniband.bth.m", bit(wire.Migrated)},
	{"infiniband.bth.padcnt", func(p wire.Packet) string { return fmt.Sprint(p.BTH().Pad()) }},
	{"infiniband.bth.tver", func(wire.Packet) string { return "0" }},
	{"infiniband.bth.p_key", func(p wire.Packet) string { return fmt.Sprintf("%#04x", p.BTH().PKey()) }},
	{"infiniband.bth.destqp", func(p wire.Packet) string { return fmt.Sprintf("%#06x", p.BTH().QPN()) }},
	{"infiniband.bth.a", bit(wire.AckReq)},
	{"infiniband.bth.psn", func(p wire.Packet) string { return fmt.Sprint(uint32(p.BTH().PSN())) }},
	{"infiniband.deth.q_key", of(wire.Packet.DETH, func(h wire.DETH) string { return fmt.Sprintf("%#016x", h.QKey()) })},
	{"infiniband.deth.srcqp", of(wire.Packet.DETH, func(h wire.DETH) string { return fmt.Sprintf("%#08x", h.SrcQPN()) })},
	{"infiniband.reth.va", memory(func(va uint64, _ uint32) string { return fmt.Sprintf("%#016x", va) })},
	{"infiniband.reth.r_key", memory(func(_ uint64, key uint32) string { return fmt.Sprintf("%#08x", key) })},
	{"infiniband.reth.dmalen", of(wire.Packet.RETH, func(h wire.RETH) string { return fmt.Sprint(h.Length()) })},
	{"infiniband.atomiceth.swapdt", of(wire.Packet.AtomicETH, func(h wire.AtomicETH) string { return fmt.Sprint(h.SwapOrAdd()) })},
	{"infiniband.atomiceth.cmpdt", of(wire.Packet.AtomicETH, func(h wire.AtomicETH) string { return fmt.Sprint(h.Compare()) })},
	{"infiniband.aeth.syndrome", of(wire.Packet.AETH, func(h wire.AETH) string { return fmt.Sprint(uint8(h.Syndrome())) })},
	{"infiniband.aeth.msn", of(wire.Packet.AETH, func(h wire.AETH) string { return fmt.Sprint(h.MSN()) })},
	{"infiniband.atomicacketh.origremdt", of(wire.Packet.AtomicAckETH, func(h wire.AtomicAckETH) string { return fmt.Sprint(h.Original()) })},
	{"infiniband.immdt", of(wire.Packet.ImmDt, func(h wire.ImmDt) string { return fmt.Sprintf("%08x", h.Imm()) })},
	{"infiniband.ieth", of(wire.Packet.IETH, func(h wire.IETH) string { return fmt.Sprintf("%08x", h.RKey()) })},
	{"data.data", func(p wire.Packet) string { return fmt.Sprintf("%x", p.Bytes()[p.Opcode().HeaderSize():icrcAt(p)]) }}, // padding is in it
	{"infiniband.invariant.crc", func(p wire.Packet) string {
		if p.Opcode() == wire.CNP {
			return "" // it is taken for part of what is reserved
		}
		return fmt.Sprintf("%#x", p.Bytes()[icrcAt(p):])
	}},
}

func icrcAt(p wire.Packet) int { return len(p.Bytes()) - wire.ICRCSize }

func bit(f wire.Flags) func(wire.Packet) string {
	return func(p wire.Packet) string {
		if p.BTH().Flags()&f != 0 {
			return "1"
		}
		return "0"
	}
}

// of is a field of a header that not every packet has.
func of[H ~[]byte](header func(wire.Packet) H, field func(H) string) func(wire.Packet) string {
	return func(p wire.Packet) string {
		if h := header(p); h != nil {
			return field(h)
		}
		return ""
	}
}

// memory is a field that requests of atomic operations have as well.
func memory(field func(va uint64, key uint32) string) func(wire.Packet) string {
	return func(p wire.Packet) string {
		switch {
		case p.RETH() != nil:
			return field(p.RETH().VA(), p.RETH().RKey())
		case p.AtomicETH() != nil:
			return field(p.AtomicETH().VA(), p.AtomicETH().RKey())
		}
		return ""
	}
}

// Compare has tshark read a capture, which it must find no fault with, and holds
// each packet in it that the display filter selects against what was sent, in the
// same order. The test is skipped where there is no tshark.
func Compare(t testing.TB, file, filter string, sent []wire.Packet) {
	t.Helper()
	if _, err := exec.LookPath("tshark"); err != nil {
		t.Skip("needs tshark of Wireshark")
	}
	for _, line := range run(t, file, "-Y", "_ws.malformed || _ws.expert.severity >= 0x600000 || !infiniband") {
		t.Errorf("tshark finds fault with %s", line)
	}
	args := []string{"-Y", filter, "-T", "fields", "-E", "separator=;", "-E", "occurrence=f"}
	for _, c := range columns {
		args = append(args, "-e", c.field)
	}
	got := run(t, file, args...)
	if len(got) != len(sent) {
		t.Fatalf("tshark reads %d packets, %d were sent", len(got), len(sent))
	}
	for i, line := range got {
		fields := strings.Split(line, ";")
		for k, c := range columns {
			if want := c.want(sent[i]); k >= len(fields) || !same(fields[k], want) {
				t.Errorf("packet %d, %v: tshark reads %s as %q, sent was %q", i, sent[i].Opcode(), c.field, fields[k], want)
			}
		}
	}
}

// same compares what versions of tshark write in ways of their own: numbers in
// decimal or hexadecimal, a bit as a number or a word.
func same(got, want string) bool {
	switch got {
	case want:
		return true
	case "True":
		got = "1"
	case "False":
		got = "0"
	}
	g, errG := strconv.ParseUint(got, 0, 64)
	w, errW := strconv.ParseUint(want, 0, 64)
	return errG == nil && errW == nil && g == w
}

func run(t testing.TB, file string, args ...string) []string {
	t.Helper()
	out, err := exec.Command("tshark", append([]string{"-r", file}, args...)...).Output()
	if err != nil {
		t.Fatal(err)
	}
	return strings.FieldsFunc(string(out), func(r rune) bool { return r == '\n' })
}
