package wire

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"math/rand/v2"
	"net/netip"
	"testing"
	"time"

	"pgregory.net/rapid"
)

var (
	v4a = netip.MustParseAddrPort("10.9.0.1:49441")
	v4b = netip.MustParseAddrPort("10.9.0.2:4791")
	v6a = netip.MustParseAddrPort("[fe80::ff:fe00:1]:50000")
	v6b = netip.MustParseAddrPort("[fe80::ff:fe00:2]:4791")
)

func opcodes() (all []Opcode) {
	for o := range 256 {
		if Opcode(o).Valid() {
			all = append(all, Opcode(o))
		}
	}
	return all
}

// TestOpcodes holds the table against IBTA's rules said in another way.
func TestOpcodes(t *testing.T) {
	if n := len(opcodes()); n != 23+12+2+1 {
		t.Errorf("%d opcodes", n)
	}
	for _, o := range opcodes() {
		size := 12
		position := o & 0x1f
		switch {
		case o == CNP:
			size += 16
		case o.Transport() == UD:
			size += 8
		case position == 6 || position == 10 || position == 11 || position == 12:
			size += 16
		case position == 13 || position >= 15 && position <= 17:
			size += 4
		case position == 18:
			size += 4 + 8
		case position == 19 || position == 20:
			size += 28
		}
		if o.HasImm() || o.HasInv() {
			size += 4
		}
		if o.HeaderSize() != size {
			t.Errorf("%v: %d bytes of headers, want %d", o, o.HeaderSize(), size)
		}
		if o.HasImm() && o.HasInv() || !o.Ends() && (o.HasImm() || o.HasInv()) {
			t.Errorf("%v: immediate data or key where none can be", o)
		}
		if answer := o.Operation() >= ReadResponse; answer == o.IsRequest() {
			t.Errorf("%v: request %v", o, o.IsRequest())
		}
	}
	for _, c := range []struct {
		o            Opcode
		starts, ends bool
		name         string
	}{
		{RCSendFirst, true, false, "RC SEND_FIRST"}, {RCWriteMiddle, false, false, "RC WRITE_MIDDLE"},
		{UCWriteLastImm, false, true, "UC WRITE_LAST_IMM"}, {RCSendOnlyInv, true, true, "RC SEND_ONLY_INV"},
		{RCReadRequest, true, true, "RC READ_REQUEST"}, {RCReadResponseLast, false, true, "RC READ_RESPONSE_LAST"},
		{0x15, false, false, "Opcode(0x15)"}, {0xff, false, false, "Opcode(0xff)"},
	} {
		if c.o.Starts() != c.starts || c.o.Ends() != c.ends || c.o.String() != c.name {
			t.Errorf("%v: starts %v, ends %v, want %q", c.o, c.o.Starts(), c.o.Ends(), c.name)
		}
	}
}

func TestParseRefuses(t *testing.T) {
	good := func(op Opcode, n int) []byte { return Make(make([]byte, 200), op, n).Bytes() }
	with := func(b []byte, at int, v byte) []byte { b[at] = v; return b }
	for _, c := range []struct {
		name string
		pkt  []byte
		want error
	}{
		{"empty", nil, Short},
		{"one byte short of BTH and ICRC", make([]byte, 15), Short},
		{"version 1", with(good(RCSendOnly, 4), 1, 1), BadVersion},
		{"reserved opcode", with(good(RCSendOnly, 4), 0, 0x15), BadOpcode},
		{"reliable datagram", with(good(RCSendOnly, 4), 0, 0x44), BadOpcode},
		{"no room for RETH", good(RCWriteOnly, 0)[:28], Truncated},
		{"padding without payload", with(good(RCSendOnly, 0), 1, 0x30), Truncated},
		{"3 bytes too many", append(good(RCSendOnly, 4), 0, 0, 0), Unaligned},
		{"payload after READ request", append(good(RCReadRequest, 0), 0, 0, 0, 0), Surplus},
		{"payload after ACK", append(good(RCAck, 0), 0, 0, 0, 0), Surplus},
		{"short CNP", good(CNP, 0)[:20], Truncated},
		{"empty SEND", good(RCSendOnly, 0), nil},
		{"padded SEND", good(RCSendOnly, 1), nil},
	} {
		if _, err := Parse(c.pkt); err != c.want {
			t.Errorf("%s: %v, want %v", c.name, err, c.want)
		}
	}
	var r Reason
	if _, err := Parse(nil); !errors.As(err, &r) || r.Error() == "" {
		t.Errorf("%v is no Reason", err)
	}
}

// TestRoundTrip: what Make and Put wrote, Parse and the views give, and no
// header runs into another.
func TestRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		op := rapid.SampledFrom(opcodes()).Draw(t, "opcode")
		n := 0
		if op.HasData() {
			n = rapid.IntRange(0, 4096).Draw(t, "length")
		}
		r := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 0))
		buf := make([]byte, Size(op, n)+8)
		for i := range buf {
			buf[i] = 0xa5
		}
		p := Make(buf, op, n)
		flags, pkey, qpn, psn := Flags(r.Uint32()&31), uint16(r.Uint32()), r.Uint32()&0xffffff, PSN(r.Uint32()&PSNMask)
		a, b, c, d := r.Uint64(), r.Uint32(), r.Uint32(), r.Uint64()
		payload := make([]byte, n)
		for i := range payload {
			payload[i] = byte(r.Uint32())
		}
		p.BTH().Put(op, flags, pkey, qpn, psn)
		if op.HasRETH() {
			p.RETH().Put(a, b, c)
		}
		if op.HasAETH() {
			p.AETH().Put(Syndrome(b), c)
		}
		if op.Operation() == AtomicAck {
			p.AtomicAckETH().Put(d)
		}
		if op.Operation() == CompareSwap || op.Operation() == FetchAdd {
			p.AtomicETH().Put(a, b, d, a^d)
		}
		if op.Transport() == UD {
			p.DETH().Put(b, c)
		}
		if op.HasImm() {
			p.ImmDt().Put(b ^ c)
		}
		if op.HasInv() {
			p.IETH().Put(b ^ c)
		}
		copy(p.Payload(), payload)
		if tail := buf[Size(op, n):]; !bytes.Equal(tail, bytes.Repeat([]byte{0xa5}, 8)) {
			t.Fatal("wrote behind the packet")
		}

		q, err := Parse(p.Bytes())
		if err != nil {
			t.Fatal(err)
		}
		h := q.BTH()
		if h.Opcode() != op || h.Flags() != flags || h.PKey() != pkey || h.QPN() != qpn || h.PSN() != psn || h.Version() != 0 ||
			h.Pad() != -n&3 || h.Solicited() != (flags&Solicited != 0) || h.AckReq() != (flags&AckReq != 0) {
			t.Fatalf("BTH %x", h)
		}
		if !bytes.Equal(q.Payload(), payload) {
			t.Fatal("payload differs")
		}
		for _, pad := range q.Bytes()[op.HeaderSize()+n : len(q.Bytes())-ICRCSize] {
			if pad != 0 {
				t.Fatal("padding is not zero")
			}
		}
		check := func(has bool, view []byte, ok func() bool) {
			if has != (len(view) > 0) || has && !ok() {
				t.Fatalf("view %x, there: %v", view, has)
			}
		}
		check(op.HasRETH(), q.RETH(), func() bool { x := q.RETH(); return x.VA() == a && x.RKey() == b && x.Length() == c })
		check(op.HasAETH(), q.AETH(), func() bool { x := q.AETH(); return x.Syndrome() == Syndrome(b) && x.MSN() == c&0xffffff })
		check(op.Operation() == AtomicAck, q.AtomicAckETH(), func() bool { return q.AtomicAckETH().Original() == d })
		check(op.Operation() == CompareSwap || op.Operation() == FetchAdd, q.AtomicETH(), func() bool {
			x := q.AtomicETH()
			return x.VA() == a && x.RKey() == b && x.SwapOrAdd() == d && x.Compare() == a^d
		})
		check(op.Transport() == UD, q.DETH(), func() bool { return q.DETH().QKey() == b && q.DETH().SrcQPN() == c&0xffffff })
		check(op.HasImm(), q.ImmDt(), func() bool { return q.ImmDt().Imm() == b^c })
		check(op.HasInv(), q.IETH(), func() bool { return q.IETH().RKey() == b^c })

		h.SetPSN(5)
		h.SetAckReq()
		if h.PSN() != 5 || !h.AckReq() || h.QPN() != qpn {
			t.Fatalf("changed BTH %x", h)
		}
	})
}

func TestMakePanics(t *testing.T) {
	for name, f := range map[string]func(){
		"opcode": func() { Make(make([]byte, 100), 0x15, 0) },
		"room":   func() { Make(make([]byte, 19), RCSendOnly, 1) },
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s: no panic", name)
				}
			}()
			f()
		}()
	}
}

func TestCNP(t *testing.T) {
	p := Make(make([]byte, 64), CNP, 0)
	if len(p.Bytes()) != 32 || p.BTH().Flags() != BECN || p.Opcode().IsRequest() {
		t.Errorf("CNP %x", p.Bytes())
	}
}

// R7, R8.
func TestPSN(t *testing.T) {
	for _, c := range []struct {
		a, b PSN
		want int32
	}{
		{0, 0, 0}, {1, 0, 1}, {0, 1, -1}, {0, PSNMask, 1}, {PSNMask, 0, -1},
		{1<<23 - 1, 0, 1<<23 - 1}, {1 << 23, 0, -1 << 23}, {1<<23 + 1, 0, -1<<23 + 1},
		{5, PSNMask - 4, 10}, {0x123456, 0x123456, 0},
	} {
		if got := c.a.Sub(c.b); got != c.want {
			t.Errorf("%#x − %#x = %d, want %d", c.a, c.b, got, c.want)
		}
		if c.a.Before(c.b) != (c.want < 0) {
			t.Errorf("%#x before %#x: %v", c.a, c.b, c.a.Before(c.b))
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		a, n := PSN(rapid.Uint32Max(PSNMask).Draw(t, "a")), rapid.Uint32Max(1<<23-1).Draw(t, "n")
		if got := a.Add(n).Sub(a); got != int32(n) || a.Add(n) > PSNMask {
			t.Fatalf("%#x + %d is %d away", a, n, got)
		}
	})
}

// R18.
func TestTimers(t *testing.T) {
	for code, want := range map[uint8]time.Duration{
		0: 655360 * time.Microsecond, 1: 10 * time.Microsecond, 12: 640 * time.Microsecond, 14: 1280 * time.Microsecond,
		31: 491520 * time.Microsecond, 32: 655360 * time.Microsecond,
	} {
		if got := RNRTime(code); got != want {
			t.Errorf("RNR code %d: %v, want %v", code, got, want)
		}
	}
	for code := uint8(2); code < 32; code++ {
		if RNRTime(code) <= RNRTime(code-1) {
			t.Errorf("RNR code %d is not longer than %d", code, code-1)
		}
	}
	for code, want := range map[uint8]time.Duration{0: 0, 1: 8192 * time.Nanosecond, 14: 67108864 * time.Nanosecond, 20: 4294967296 * time.Nanosecond} {
		if got := AckTime(code); got != want {
			t.Errorf("ACK code %d: %v, want %v", code, got, want)
		}
	}
}

func TestSyndromes(t *testing.T) {
	for s := range 256 {
		s := Syndrome(s)
		n := 0
		for _, is := range []bool{s.IsAck(), s.IsRNR(), s.IsNak()} {
			if is {
				n++
			}
		}
		known := s < 0x40 || s >= 0x60 && s <= 0x63
		if (n == 1) != known || n > 1 {
			t.Errorf("syndrome %#x is of %d kinds", s, n)
		}
	}
	if s := RNRNak(14); s != 0x2e || !s.IsRNR() || s.RNRCode() != 14 || !SynAck.IsAck() || !SynAccess.IsNak() {
		t.Errorf("RNR NAK %#x", s)
	}
}

// R51.
func TestPathMTU(t *testing.T) {
	for netdev, want := range map[int]int{1500: 1024, 4200: 4096, 335: 0, 336: 256, 9000: 4096, 65536: 4096, 2128: 2048, 2127: 1024, 0: 0} {
		if got := PathMTU(netdev); got != want {
			t.Errorf("MTU %d: %d, want %d", netdev, got, want)
		}
	}
	for n, want := range map[int]int{0: 1, 1: 1, 1023: 1, 1024: 1, 1025: 2, 2048: 2, 8 << 20: 8192} {
		if got := Packets(n, 1024); got != want {
			t.Errorf("%d bytes: %d packets, want %d", n, got, want)
		}
	}
}

// slowICRC says R41 as plainly as it can be said.
func slowICRC(src, dst netip.AddrPort, id uint16, pkt []byte) uint32 {
	ones := bytes.Repeat([]byte{0xff}, 8)
	b := bytes.Clone(ones)
	udpLen := uint16(8 + len(pkt))
	if src.Addr().Is4() {
		ip := make([]byte, 20)
		ip[0], ip[1] = 0x45, 0xff
		binary.BigEndian.PutUint16(ip[2:], 20+udpLen)
		binary.BigEndian.PutUint16(ip[4:], id)
		ip[6], ip[8], ip[9], ip[10], ip[11] = 0x40, 0xff, 17, 0xff, 0xff
		copy(ip[12:], src.Addr().AsSlice())
		copy(ip[16:], dst.Addr().AsSlice())
		b = append(b, ip...)
	} else {
		ip := make([]byte, 40)
		copy(ip, []byte{0x6f, 0xff, 0xff, 0xff})
		binary.BigEndian.PutUint16(ip[4:], udpLen)
		ip[6], ip[7] = 17, 0xff
		copy(ip[8:], src.Addr().AsSlice())
		copy(ip[24:], dst.Addr().AsSlice())
		b = append(b, ip...)
	}
	b = binary.BigEndian.AppendUint16(b, src.Port())
	b = binary.BigEndian.AppendUint16(b, dst.Port())
	b = binary.BigEndian.AppendUint16(b, udpLen)
	b = append(b, 0xff, 0xff)
	at := len(b)
	b = append(b, pkt[:len(pkt)-4]...)
	b[at+4] = 0xff
	return crc32.ChecksumIEEE(b)
}

func randomPacket(r *rand.Rand, payload int) []byte {
	p := Make(make([]byte, Size(RCSendOnly, payload)), RCSendOnly, payload)
	for i := range p.Bytes() {
		p.Bytes()[i] = byte(r.Uint32())
	}
	return p.Bytes()
}

// R41, R41a: sealing, checking, recovering, renumbering agree with the plain
// computation, for each length and Identification.
func TestICRC(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 0))
		n := rapid.IntRange(0, 4140).Draw(t, "length")
		id, hint := uint16(r.Uint32()), uint16(r.Uint32())
		port := uint16(r.Uint32())
		src4, dst4 := netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, byte(r.Uint32()), 3, 4}), port), v4b
		src6, dst6 := netip.AddrPortFrom(netip.AddrFrom16([16]byte{0xfd, byte(r.Uint32()), 7}), port), v6b
		pkt := randomPacket(r, n)

		p4 := NewPath(src4, dst4)
		p4.Seal(pkt, id)
		if got := binary.LittleEndian.Uint32(pkt[len(pkt)-4:]); got != slowICRC(src4, dst4, id, pkt) {
			t.Fatalf("IPv4: %#x", got)
		}
		if mapped := NewPath(netip.AddrPortFrom(netip.AddrFrom16(src4.Addr().As16()), port), dst4); mapped != p4 {
			t.Fatal("an IPv4 address in IPv6 form makes another path")
		}
		if !p4.Verify(pkt, id) || p4.Verify(pkt, id+1) {
			t.Fatal("Verify")
		}
		if got, ok := p4.Check(pkt, hint); !ok || got != id {
			t.Fatalf("ID %#x recovered as %#x, %v", id, got, ok)
		}
		pkt[4] ^= byte(r.Uint32()) // outside the ICRC
		Renumber(pkt, id, hint)
		if !p4.Verify(pkt, hint) {
			t.Fatal("Renumber")
		}

		p6 := NewPath(src6, dst6)
		p6.Seal(pkt, id)
		if got := binary.LittleEndian.Uint32(pkt[len(pkt)-4:]); got != slowICRC(src6, dst6, 0, pkt) {
			t.Fatalf("IPv6: %#x", got)
		}
		if got, ok := p6.Check(pkt, hint); !ok || got != hint {
			t.Fatal("Check on IPv6")
		}
		pkt[len(pkt)-5] ^= 1
		if _, ok := p6.Check(pkt, 0); ok || p6.Verify(pkt, 0) {
			t.Fatal("a changed bit on IPv6 passes")
		}
	})
}

// Packets up to some hundred bytes take another way than longer ones, and begin it otherwise at each length.
func TestICRCOfEachShortLength(t *testing.T) {
	const seed = 7
	r := rand.New(rand.NewPCG(seed, 0))
	for payload := range 400 {
		for _, id := range []uint16{0, uint16(r.Uint32())} {
			for _, ends := range [][2]netip.AddrPort{{v4a, v4b}, {v6a, v6b}} {
				pkt := randomPacket(r, payload)
				if got, want := NewPath(ends[0], ends[1]).ICRC(pkt, id), slowICRC(ends[0], ends[1], id, pkt); got != want {
					t.Errorf("seed %d, %d bytes, from %v: %#x, want %#x", seed, len(pkt), ends[0], got, want)
				}
			}
		}
	}
}

// R40: of packets with one bit changed none passes the exact check; about one
// in 65,536 passes that without the Identification.
func TestDamageIsFound(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	path := NewPath(v4a, v4b)
	pkt := randomPacket(r, 1024)
	path.Seal(pkt, 7)
	passed := 0
	for bit := range len(pkt) * 8 {
		if bit/8 == 4 {
			continue
		}
		pkt[bit/8] ^= 1 << (bit % 8)
		if path.Verify(pkt, 7) {
			t.Fatalf("bit %d changed passes the exact check", bit)
		}
		if _, ok := path.Check(pkt, 7); ok {
			passed++
		}
		pkt[bit/8] ^= 1 << (bit % 8)
	}
	if passed > 5 {
		t.Errorf("%d of %d damaged packets pass", passed, len(pkt)*8)
	}
	// Random ICRCs: 15 are expected, 2^-16 of a million.
	passed = 0
	for range 1_000_000 {
		if _, ok := recoverID(r.Uint32(), len(pkt)); ok {
			passed++
		}
	}
	if passed < 2 || passed > 40 {
		t.Errorf("%d of a million random ICRCs pass", passed)
	}
}

// A run's pieces are the whole.
func TestRun(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 7))
	for _, path := range []Path{NewPath(v4a, v4b), NewPath(v6a, v6b)} {
		for _, size := range []int{256, 1024, 4096} {
			pkt := Make(make([]byte, Size(RCWriteMiddle, size)), RCWriteMiddle, size)
			for i := range pkt.Payload() {
				pkt.Payload()[i] = byte(r.Uint32())
			}
			for range 50 {
				id, ack, psn := uint16(r.Uint32()), Flags(r.Uint32())&AckReq, PSN(r.Uint32())
				others, pkey, qpn := Flags(r.Uint32())&(Solicited|Migrated), uint16(r.Uint32()), r.Uint32()
				var first [BTHSize]byte
				BTH(first[:]).Put(RCWriteMiddle, others|Flags(r.Uint32())&(FECN|BECN), pkey, qpn, PSN(r.Uint32()))
				run := path.Run(len(pkt.Bytes()), first[:])

				pkt.BTH().Put(RCWriteMiddle, others|ack|Flags(r.Uint32())&(FECN|BECN), pkey, qpn, psn)
				if !run.Has(pkt.BTH()) {
					t.Fatalf("% x is not in a run with % x", pkt.BTH(), first)
				}
				got := crc32.Update(run.Begin(pkt.BTH(), id), crc32.IEEETable, pkt.Payload())
				if want := path.ICRC(pkt.Bytes(), id); got != want {
					t.Fatalf("%d bytes, Identification %d: %#x, want %#x", size, id, got, want)
				}
				if put := crc32.Update(run.Put(pkt.BTH(), ack, psn, id), crc32.IEEETable, pkt.Payload()); put != got {
					t.Fatalf("%d bytes, Identification %d, written: %#x, want %#x", size, id, put, got)
				}
				if h := pkt.BTH(); !run.Has(h) || h.PSN() != psn&0xffffff || h.AckReq() != (ack != 0) {
					t.Fatalf("% x was written, PSN %#x, %v", h, psn, ack)
				}
				for bit := range 64 {
					h := bytes.Clone(pkt.BTH())
					if h[bit/8] ^= 1 << (bit % 8); run.Has(h) != (bit/8 == 4) {
						t.Fatalf("% x in a run with % x: %v", h, first, run.Has(h))
					}
				}
				other := path.ICRC(pkt.Bytes(), id^uint16(1+r.IntN(65535)))
				if got := run.Recover(got ^ other); got == path.v6 && other != path.ICRC(pkt.Bytes(), id) {
					t.Fatalf("another Identification: %v", got)
				}
				if !run.Recover(0) || run.Recover(0x12345678) && path.v6 {
					t.Fatal("Recover")
				}
			}
		}
	}
}

func TestHotPathAllocatesNothing(t *testing.T) {
	buf, path := make([]byte, 2048), NewPath(v4a, v4b)
	var sink int
	if n := testing.AllocsPerRun(100, func() {
		p := Make(buf, RCWriteOnlyImm, 1000)
		p.BTH().Put(RCWriteOnlyImm, AckReq, 0xffff, 7, 9)
		p.RETH().Put(1, 2, 3)
		p.ImmDt().Put(4)
		path.Seal(p.Bytes(), 3)
		q, err := Parse(p.Bytes())
		if err != nil {
			t.Error(err)
		}
		if _, ok := path.Check(q.Bytes(), 0); !ok {
			t.Error("ICRC")
		}
		_, err = Parse(buf[:3])
		sink += len(q.Payload()) + int(err.(Reason)) + int(NewPath(v6a, v6b).base&1)
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func TestReasonsHaveWords(t *testing.T) {
	seen := map[string]bool{}
	for r := range Reasons + 1 {
		if s := Reason(r).Error(); s == "" || seen[s] {
			t.Errorf("reason %d: %q", r, s)
		} else {
			seen[s] = true
		}
	}
}

func BenchmarkICRC(b *testing.B) {
	for _, n := range []int{0, 8, 256, 1024, 4096} {
		pkt, path := randomPacket(rand.New(rand.NewPCG(1, 1)), n), NewPath(v4a, v4b)
		b.Run(fmt.Sprint("seal/", n), func(b *testing.B) {
			for i := 0; b.Loop(); i++ {
				path.Seal(pkt, uint16(i&63))
			}
		})
		path.Seal(pkt, 0x4242)
		b.Run(fmt.Sprint("check, expected ID/", n), func(b *testing.B) {
			for b.Loop() {
				path.Check(pkt, 0x4242)
			}
		})
		b.Run(fmt.Sprint("check, unknown ID/", n), func(b *testing.B) {
			for b.Loop() {
				path.Check(pkt, 1)
			}
		})
	}
	pkt := randomPacket(rand.New(rand.NewPCG(1, 1)), 1024)
	b.Run("renumber/1024", func(b *testing.B) {
		for b.Loop() {
			Renumber(pkt, 3, 0)
		}
	})
	b.Run("new path, IPv4", func(b *testing.B) {
		for b.Loop() {
			NewPath(v4a, v4b)
		}
	})
}

func BenchmarkHeaders(b *testing.B) {
	buf := make([]byte, 2048)
	b.Run("make", func(b *testing.B) {
		for b.Loop() {
			p := Make(buf, RCWriteFirst, 1024)
			p.BTH().Put(RCWriteFirst, 0, 0xffff, 7, 9)
			p.RETH().Put(1, 2, 3)
		}
	})
	pkt := Make(buf, RCWriteFirst, 1024).Bytes()
	b.Run("parse", func(b *testing.B) {
		var sum uint64
		for b.Loop() {
			p, err := Parse(pkt)
			if err != nil {
				b.Fatal(err)
			}
			sum += uint64(p.BTH().QPN()) + p.RETH().VA()
		}
	})
}
