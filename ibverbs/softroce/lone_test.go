package softroce

import (
	"bytes"
	"testing"

	"github.com/purerdma/purerdma/ibverbs/driver"
	"github.com/purerdma/purerdma/ibverbs/softroce/internal/link"
	"github.com/purerdma/purerdma/ibverbs/softroce/internal/wire"
)

// A short inline write goes out exactly as the same bytes from registered memory do, which go the general way.
func TestLoneWriteIsLikeAnyOther(t *testing.T) {
	inBubble(t, rigConfig{signalAll: true}, func(r *rig) {
		r.a.fill(1)
		for n := 1; n <= loneMost; n++ {
			var went [2][]seenPacket
			for way := range went {
				r.forget()
				clear(r.b.bytes(0, 128))
				wr := driver.SendWR{ID: uint64(n), Op: driver.OpWrite, Remote: r.b.remote(8)}
				if way == 0 {
					wr.Inline = r.a.bytes(0, n)
				} else {
					wr.SGL = []driver.SGE{r.a.sge(0, n)}
				}
				r.a.post(wr)
				r.a.one(uint64(n), driver.Success)
				if got := r.b.bytes(0, 128); !bytes.Equal(got[8:8+n], r.a.bytes(0, n)) || !bytes.Equal(got[:8], make([]byte, 8)) ||
					!bytes.Equal(got[8+n:], make([]byte, 120-n)) {
					t.Fatalf("%d bytes, way %d: %x", n, way, got)
				}
				went[way] = r.sent(wire.Write)
			}
			if len(went[0]) != 1 || len(went[1]) != 1 {
				t.Fatalf("%d bytes: %d and %d packets", n, len(went[0]), len(went[1]))
			}
			a, b := went[0][0].data, went[1][0].data
			for _, p := range [][]byte{a, b} {
				wire.BTH(p).SetPSN(0)
			}
			if !bytes.Equal(a[:len(a)-wire.ICRCSize], b[:len(b)-wire.ICRCSize]) {
				t.Fatalf("%d bytes: %x\n%x", n, a, b)
			}
		}
	})
}

// The shorter way takes what is quite usual, and leaves the rest to the general one without a trace.
func TestLoneWriteLeavesTheRestAlone(t *testing.T) {
	inBubble(t, rigConfig{psn: wire.PSNMask}, func(r *rig) {
		r.a.post(driver.SendWR{Op: driver.OpWrite, Inline: []byte{1, 2, 3, 4}, Flags: driver.Signaled, Remote: r.b.remote(0)})
		r.a.one(0, driver.Success)
		q, rx := r.b.q, r.b.q.e.rx
		from, to := r.a.q.e.link.LocalAddr(), r.b.q.e.link.LocalAddr()
		psn := q.resp.psn
		type parts struct {
			op          wire.Opcode
			payload     int
			psn         wire.PSN
			pkey        uint16
			qpn         uint32
			va          uint64
			key, length uint32
		}
		good := parts{wire.RCWriteOnly, 8, psn, defaultPKey, q.num, r.b.mem.Addr(), r.b.key(), 8}
		packet := func(p parts) []byte {
			pkt := wire.Make(make([]byte, 512), p.op, p.payload)
			pkt.BTH().Put(p.op, wire.AckReq, p.pkey, p.qpn, p.psn)
			pkt.RETH().Put(p.va, p.key, p.length)
			if p.op.HasImm() {
				pkt.ImmDt().Put(1)
			}
			fill := pkt.Payload()
			for i := range fill {
				fill[i] = byte(i + 1)
			}
			wire.NewPath(from, to).Seal(pkt.Bytes(), 0)
			return pkt.Bytes()
		}
		take := func(b []byte, seg int) bool {
			rx.mu.Lock()
			defer rx.mu.Unlock()
			d := link.Datagrams{Addr: from, Data: b, Seg: seg}
			took := rx.takeLone(&d, rx.path(from))
			rx.unlock()
			return took
		}
		usual := func(f func(p *parts)) func() ([]byte, int) {
			p := good
			f(&p)
			return func() ([]byte, int) { return packet(p), 0 }
		}
		for name, c := range map[string]func() ([]byte, int){
			"another operation":   usual(func(p *parts) { p.op = wire.RCWriteOnlyImm }),
			"the first of more":   usual(func(p *parts) { p.op = wire.RCWriteFirst }),
			"another transport":   usual(func(p *parts) { p.op = wire.UCWriteOnly }),
			"no data":             usual(func(p *parts) { p.payload, p.length = 0, 0 }),
			"much data":           usual(func(p *parts) { p.payload, p.length = loneMost+4, loneMost+4 }),
			"padding":             usual(func(p *parts) { p.payload, p.length = 7, 7 }),
			"less data than said": usual(func(p *parts) { p.length = 12 }),
			"more data than said": usual(func(p *parts) { p.length = 4 }),
			"one packet missing":  usual(func(p *parts) { p.psn = psn.Add(1) }),
			"a duplicate":         usual(func(p *parts) { p.psn = psn.Add(wire.PSNMask) }),
			"another partition":   usual(func(p *parts) { p.pkey = 0x1234 }),
			"no such queue pair":  usual(func(p *parts) { p.qpn ^= 1 }),
			"no such key":         usual(func(p *parts) { p.key ^= 1 }),
			"key of a window":     usual(func(p *parts) { p.key |= windowBit }),
			"before the memory":   usual(func(p *parts) { p.va-- }),
			"behind the memory":   usual(func(p *parts) { p.va += uint64(r.b.mem.Len()) - 7 }),
			"address wraps":       usual(func(p *parts) { p.va = ^uint64(0) - 3 }),
			"ICRC":                func() ([]byte, int) { b := packet(good); b[len(b)-1] ^= 1; return b, 0 },
			"version":             func() ([]byte, int) { b := packet(good); b[1] |= 1; wire.NewPath(from, to).Seal(b, 0); return b, 0 },
			"cut off":             func() ([]byte, int) { return packet(good)[:loneHeaders], 0 },
			"two of them":         func() ([]byte, int) { b := packet(good); return append(b, b...), len(b) },
			"nothing":             func() ([]byte, int) { return nil, 0 },
		} {
			before := bytes.Clone(r.b.mem.Bytes())
			if b, seg := c(); take(b, seg) {
				t.Errorf("%s: was taken", name)
			}
			if q.resp.psn != psn || !bytes.Equal(before, r.b.mem.Bytes()) {
				t.Fatalf("%s: left a trace", name)
			}
		}
		for name, change := range map[string]func() (back func()){
			"no right to write": func() func() {
				a := q.attr.Access
				q.attr.Access &^= driver.RemoteWrite
				return func() { q.attr.Access = a }
			},
			"another peer": func() func() { a := q.to; q.to = to; return func() { q.to = a } },
			"in a message": func() func() { q.resp.message = wire.Write; return func() { q.resp.message = 0 } },
			"refusing":     func() func() { q.resp.refusal = accessDenied; return func() { q.resp.refusal = accepted } },
			"in error":     func() func() { s := q.attr.State; q.attr.State = driver.StateErr; return func() { q.attr.State = s } },
			"closed":       func() func() { q.closed = true; return func() { q.closed = false } },
		} {
			back := change()
			if take(packet(good), 0) {
				t.Errorf("%s: was taken", name)
			}
			back()
		}
		if !take(packet(good), 0) || q.resp.psn != psn.Add(1) || !bytes.Equal(r.b.bytes(0, 8), []byte{1, 2, 3, 4, 5, 6, 7, 8}) {
			t.Errorf("the usual one was not taken: number %d, memory %x", q.resp.psn, r.b.bytes(0, 8))
		}
	})
}
