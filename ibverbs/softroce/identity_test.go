package softroce

import (
	"bytes"
	"context"
	"encoding/binary"
	"hash/crc32"
	"net/netip"
	"runtime"
	"testing"
	"time"

	"github.com/purerdma/purerdma/ibverbs/driver"
	"github.com/purerdma/purerdma/ibverbs/softroce/internal/link"
	"github.com/purerdma/purerdma/ibverbs/softroce/internal/wire"
)

// R07: numbers are before or behind each other by their signed distance in 24 bits,
// also across the wrap.
func TestR07NumbersCompareBySignedDistance(t *testing.T) {
	for _, base := range []uint32{0, 5, 0x7fffff, 0x800000, 0xfffffe} {
		for d, ahead := range map[uint32]bool{1: true, 2: true, 1<<23 - 1: true, 1 << 23: false, 1<<23 + 1: false, 1<<24 - 1: false} {
			inBubble(t, rigConfig{psn: base}, func(r *rig) {
				r.forge(wire.RCSendOnly, 0, wire.PSN(base).Add(d), nil, nil)
				gaps, dups := r.b.counter("out_of_seq_request"), r.b.counter("duplicate_request")
				if ahead && (gaps != 1 || dups != 0) || !ahead && (gaps != 0 || dups != 1) {
					t.Errorf("%#x after %#x: %d gaps, %d duplicates", d, base, gaps, dups)
				}
				// The requester has nothing under way: nothing is an answer.
				before := r.a.counter("rcvd_stale_answer") // b may have answered
				r.inject(r.b, r.a, wire.RCAck, 0, wire.PSN(base).Add(d), nil, func(p wire.Packet) { p.AETH().Put(wire.SynAck, 0) })
				if n := r.a.counter("rcvd_stale_answer") - before; n != 1 {
					t.Errorf("%#x after %#x: %d stale answers", d, base, n)
				}
			})
		}
	}
}

// R14: the count has three bits, and 7 is seven repetitions, not infinity; the total
// time follows. TestR13RetryExhausted has the other counts.
func TestR14SevenRetriesAreSeven(t *testing.T) {
	inBubble(t, rigConfig{retryCnt: 7}, func(r *rig) {
		r.cut(r.b)
		start := time.Now()
		r.a.post(r.a.write(1, 0, 8))
		r.a.one(1, driver.RetryExcErr)
		if n, d := len(r.sent(wire.Write)), time.Since(start); n != 8 || d < 8*wire.AckTime(14) || d > 8*wire.AckTime(14)+time.Millisecond {
			t.Errorf("sent %d times in %v", n, d)
		}
		if n := r.a.counter("retry_exceeded_err"); n != 1 {
			t.Errorf("counted %d times", n)
		}
	})
}

// R37: an empty SEND and an empty WRITE with immediate data each take a receive.
func TestR37EmptyMessagesTakeReceives(t *testing.T) {
	inBubble(t, rigConfig{}, func(r *rig) {
		r.b.recv(driver.RecvWR{ID: 1}, driver.RecvWR{ID: 2}, driver.RecvWR{ID: 3, SGL: []driver.SGE{r.b.sge(0, 64)}})
		r.a.post(r.a.send(11, 0, 0),
			driver.SendWR{ID: 12, Op: driver.OpWriteWithImm, Flags: driver.Signaled, Imm: 7},
			driver.SendWR{ID: 13, Op: driver.OpSendWithImm, Flags: driver.Signaled, Imm: 8})
		for i, wc := range r.b.take(3) {
			imm := []uint32{0, 7, 8}[i]
			if wc.ID != uint64(i+1) || wc.Status != driver.Success || wc.ByteLen != 0 || wc.Imm != imm || wc.Flags&driver.WCWithImm != 0 != (imm != 0) {
				t.Errorf("completion %d is %+v", i, wc)
			}
		}
		r.a.take(3)
	})
}

// R41: what the device sends has the ICRC of its IP packet, computed as the rule
// says it and by nothing of package wire.
func TestR41ICRCOfTheWholePacket(t *testing.T) {
	for name, v6 := range map[string]bool{"IPv4": false, "IPv6": true} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, rigConfig{v6: v6, sim: SimConfig{Split: true}}, func(r *rig) {
				packets := 0
				r.sim.Hook(func(p *link.SimPacket) link.Fate {
					packets++
					n := len(p.Data) - 4
					if got, want := binary.LittleEndian.Uint32(p.Data[n:]), plainICRC(p); got != want {
						t.Errorf("%v: ICRC %08x, want %08x", wire.Opcode(p.Data[0]), got, want)
					}
					return link.Pass
				})
				r.a.fill(41)
				r.b.recv(driver.RecvWR{ID: 1, SGL: []driver.SGE{r.b.sge(0, 4096)}})
				r.a.post(r.a.send(1, 0, 1027), r.a.write(2, 4096, 1500), r.a.read(3, 8192, 999), r.a.add(4, 0, 1))
				r.a.take(4)
				if packets < 15 {
					t.Errorf("%d packets", packets)
				}
			})
		})
	}
}

// plainICRC lays the packet out with its IP and UDP headers, puts ones where
// routers may change something, and takes the CRC-32.
func plainICRC(p *link.SimPacket) uint32 {
	be := binary.BigEndian
	ones := bytes.Repeat([]byte{0xff}, 8)
	body := bytes.Clone(p.Data[:len(p.Data)-4])
	body[4] = 0xff // FECN, BECN and what is reserved
	udp := make([]byte, 8)
	be.PutUint16(udp, p.Src.Port())
	be.PutUint16(udp[2:], p.Dst.Port())
	be.PutUint16(udp[4:], uint16(8+len(p.Data)))
	copy(udp[6:], ones) // checksum
	var ip []byte
	if p.Src.Addr().Is4() {
		ip = []byte{0x45, 0xff, 0, 0, 0, 0, 0x40, 0, 0xff, 17, 0xff, 0xff} // type of service, time to live, checksum
		be.PutUint16(ip[2:], uint16(28+len(p.Data)))
		be.PutUint16(ip[4:], p.ID)
	} else {
		ip = []byte{0x6f, 0xff, 0xff, 0xff, 0, 0, 17, 0xff} // traffic class, flow label, hop limit
		be.PutUint16(ip[4:], uint16(8+len(p.Data)))
	}
	ip = append(append(ip, p.Src.Addr().AsSlice()...), p.Dst.Addr().AsSlice()...)
	return crc32.ChecksumIEEE(bytes.Join([][]byte{ones, ip, udp, body}, nil))
}

// R41a: a UDP socket does not see the Identification, so that a packet sealed for
// any of them is taken, and only then; a packet socket takes the one that came.
func TestR41aIdentification(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("only Linux has all of 127.0.0.0/8 and keeps the Identification 0")
	}
	t.Run("UDP", func(t *testing.T) { identification(t, OnUDP(), 2) })
	t.Run("packet socket", func(t *testing.T) {
		needPacketSockets(t)
		identification(t, OnPacketSockets(), 1)
	})
}

// identification sends three packets with the Identification 0 from a socket to a
// device: sealed for 0x1234, sealed for none, and sealed for 0. It sees how many
// the device takes.
func identification(t *testing.T, n Network, taken uint64) {
	addrs := loopbacks(2)
	drv := New(Config{Addrs: addrs[:1], Network: n})
	devices, _ := drv.Devices()
	r := &rig{t: t, cfg: rigConfig{typ: driver.RC, mtu: driver.MTU1024, timeout: 14, retryCnt: 7, rdAtomic: 1, access: everything, memory: 4096, depth: 4, cqDepth: 16}}
	e, peer := &end{r: r, name: 'a', addr: addrs[0]}, &end{r: r, name: 'b', addr: addrs[1]}
	e.open(devices[0])
	defer func() {
		r.must(e.q.Close())
		r.must(e.mr.Close())
		r.must(e.cq.Close())
		r.must(e.pd.Close())
		r.must(e.ctx.Close())
		_ = e.mem.Release()
	}()
	r.must(toRTR(e, e.q, peer, 0x77))
	r.must(toRTS(e, e.q))
	l, err := link.ListenUDP(link.UDPConfig{Addr: addrs[1]})
	r.must(err)
	defer func() { r.must(l.Close()) }()
	e.recv(driver.RecvWR{ID: 1, SGL: []driver.SGE{e.sge(0, 8)}}, driver.RecvWR{ID: 2, SGL: []driver.SGE{e.sge(0, 8)}})
	path := wire.NewPath(l.LocalAddr(), netip.AddrPortFrom(addrs[0], wire.Port))
	// Where the first was not taken, the last is the first for the device.
	for psn, id := range []int{0x1234, -1, 0} {
		p := wire.Make(make([]byte, 64), wire.RCSendOnly, 8)
		p.BTH().Put(wire.RCSendOnly, wire.AckReq, defaultPKey, e.q.num, wire.PSN(min(psn, int(taken)-1)))
		path.Seal(p.Bytes(), uint16(max(id, 0)))
		if id < 0 {
			p.Payload()[3] ^= 1
		}
		_, err := l.Send([]link.Datagrams{{Addr: netip.AddrPortFrom(addrs[0], wire.Port), Data: p.Bytes()}})
		r.must(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	batch := make([]link.Datagrams, 4)
	for last := wire.PSN(0); ; {
		k, err := l.Recv(ctx, batch)
		r.must(err)
		for i := range batch[:k] {
			last = wire.BTH(batch[i].Segment(batch[i].Len() - 1)).PSN()
		}
		if last == wire.PSN(taken-1) {
			break
		}
	}
	if got, bad := uint64(len(e.poll())), e.counter("rcvd_icrc_err"); got != taken || bad != 3-taken {
		t.Errorf("%d taken, %d dropped; want %d and %d", got, bad, taken, 3-taken)
	}
}

// R51: the path MTU is the largest that fits into the network device's, less the
// headers; a port whose device carries none is down.
func TestR51PathMTUOfThePort(t *testing.T) {
	for netdev, want := range map[int]driver.MTU{1500: driver.MTU1024, 4200: driver.MTU4096, 4175: driver.MTU2048, 9000: driver.MTU4096, 336: driver.MTU256, 335: 0} {
		inBubble(t, rigConfig{sim: SimConfig{MTU: netdev}, apart: true}, func(r *rig) {
			a, err := r.a.ctx.QueryPort(1)
			r.must(err)
			if a.ActiveMTU != want || a.MaxMTU != driver.MTU4096 || (a.State == driver.PortActive) != (want != 0) {
				t.Errorf("MTU %d: %+v", netdev, a)
			}
			for m := driver.MTU256; m <= driver.MTU4096; m++ {
				r.cfg.mtu = m
				if err := toRTR(r.a, r.a.q, r.b, r.b.q.num); (err == nil) != (m <= want) {
					t.Errorf("MTU %d: path MTU %v: %v", netdev, m, err)
				} else if err == nil {
					r.must(r.a.q.Modify(&driver.QPAttr{State: driver.StateReset}, driver.QPStateMask))
					r.must(r.a.q.Modify(&driver.QPAttr{State: driver.StateInit, Port: 1}, driver.QPStateMask|driver.QPPort|driver.QPPKeyIndex|driver.QPAccessFlags))
				}
			}
		})
	}
}

// R52: packets go to port 4791, those of one queue pair from one port of the dynamic
// range, and the peer's may come from any.
func TestR52SourcePorts(t *testing.T) {
	inBubble(t, rigConfig{sim: SimConfig{Split: true}}, func(r *rig) {
		ports := map[byte]map[uint16]bool{'a': {}, 'b': {}}
		r.sim.Hook(func(p *link.SimPacket) link.Fate {
			from := byte('a')
			if p.Src.Addr() == r.b.addr {
				from = 'b'
			}
			ports[from][p.Src.Port()] = true
			if p.Dst.Port() != wire.Port || p.Src.Port() < 49152 {
				t.Errorf("packet from %v to %v", p.Src, p.Dst)
			}
			return link.Pass
		})
		r.a.post(r.a.write(1, 0, 4096), r.a.read(2, 0, 4096))
		r.a.take(2)
		if len(ports['a']) != 1 || len(ports['b']) != 1 {
			t.Errorf("ports %v", ports)
		}
		for i := range wire.PSN(3) {
			before := r.b.counter("rcvd_wrong_peer") + r.b.counter("rcvd_icrc_err")
			p := wire.Make(make([]byte, 64), wire.RCWriteOnly, 0)
			p.BTH().Put(wire.RCWriteOnly, 0, defaultPKey, r.b.q.num, r.b.q.resp.psn)
			p.RETH().Put(0, 0, 0)
			src := netip.AddrPortFrom(r.a.addr, uint16(1024+5000*i))
			wire.NewPath(src, netip.AddrPortFrom(r.b.addr, wire.Port)).Seal(p.Bytes(), 0)
			next := r.b.q.resp.psn.Add(1)
			r.sim.Inject(src, r.b.addr, p.Bytes())
			r.settle()
			if r.b.q.resp.psn != next || r.b.counter("rcvd_wrong_peer")+r.b.counter("rcvd_icrc_err") != before {
				t.Errorf("a packet from %v was not taken", src)
			}
		}
	})
	t.Run("many queue pairs, many ports", func(t *testing.T) {
		inBubble(t, rigConfig{}, func(r *rig) {
			ports := map[uint16]bool{}
			for range 16 {
				q := r.a.newQP(r.a.cq)
				ports[r.a.q.e.link.Source(q.num).Port()] = true
				r.must(q.Close())
			}
			if len(ports) < 8 {
				t.Errorf("16 queue pairs have ports %v", ports)
			}
		})
	})
}
