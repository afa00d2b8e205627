package mlx5model

import (
	"encoding/binary"
	"net/netip"

	"github.com/purerdma/purerdma/ibverbs/driver"
	"github.com/purerdma/purerdma/internal/mlx5prm"
)

// grhSize is the bytes in front of a datagram in its receive. They are left alone where
// it came without a global route header.
const grhSize = 40

// avGlobal in AV.GRHGIDFL says that a datagram has a global route header, on InfiniBand.
const avGlobal = 1 << 30

// ownQKey in a Q key stands for the sending queue pair's.
const ownQKey = 1 << 31

// datagram delivers b to those who take it.
func (q *qp) datagram(e *entry, b []byte) {
	config := &q.c.m.config
	num := e.av.DQPDCT.Get() & 0xffffff
	global := config.Ethernet || e.av.GRHGIDFL.Get()&avGlobal != 0
	if config.Ethernet && e.av.RMAC != macOf(e.av.RGID) {
		q.c.m.faultf("queue pair %#x sends a datagram to the MAC %x", q.num, e.av.RMAC)
		return
	}
	switch {
	case num == toGroup && global:
		for _, p := range q.c.m.qps {
			if p.hears(q, e.av.RGID, e.av.RLID.Get()) {
				p.hear(q, e, b, true)
			}
		}
	case global && !config.routes(uint8(e.av.GRHGIDFL.Get()>>20), e.av.RGID), !global && e.av.RLID.Get() != lid:
	case q.c.m.qps[num] != nil:
		q.c.m.qps[num].hear(q, e, b, global)
	}
}

// hear takes a datagram of another's, if it is for such a queue pair in such a state.
func (q *qp) hear(from *qp, e *entry, b []byte, global bool) {
	config := &from.c.m.config
	key := e.av.QKey.Get()
	if key&ownQKey != 0 {
		key = from.attr.QKey
	}
	if q.kind != driver.UD || !q.receives() || q.attr.QKey != key {
		return
	}
	r := q.nextReceive()
	if r == nil {
		return
	}
	if uint64(len(b))+grhSize > r.length {
		q.unfit(r, mlx5prm.SyndromeLocalLengthErr, 0)
		return
	}
	c := mlx5prm.CQE{}
	c.ByteCnt.Set(uint32(len(b) + grhSize))
	if !config.Ethernet {
		c.SLID.Set(lid)
	}
	flags := uint32(e.av.StatRateSL&0xf)<<24 | from.num
	if global {
		flags |= 1 << 28
	}
	c.FlagsRQPN.Set(flags)
	if e.FmCeSe&mlx5prm.CtrlSolicited != 0 {
		c.OpOwn = mlx5prm.SolicitedEvent
	}
	opcode := uint8(mlx5prm.CQERespSend)
	if e.Opcode() == mlx5prm.OpSendImm {
		opcode, c.ImmInvalPKey = mlx5prm.CQERespSendImm, e.Imm
	}
	head, rest := split(r.data, grhSize)
	if global && !q.scatter(head, config.routeHeader(e, len(b))) || !q.scatter(rest, b) {
		q.unfit(r, mlx5prm.SyndromeLocalProtErr, 0)
		return
	}
	q.received(r, &c, opcode, nil)
	q.took()
}

// split is the first n bytes of a list, and what is behind them.
func split(pieces []piece, n uint64) (head, rest []piece) {
	for i, p := range pieces {
		if p.n > n {
			rest = append(rest, piece{key: p.key, addr: p.addr + n, n: p.n - n})
			rest = append(rest, pieces[i+1:]...)
			p.n = n
		}
		if n -= p.n; p.n > 0 {
			head = append(head, p)
		}
		if n == 0 {
			if rest == nil {
				rest = pieces[i+1:]
			}
			return head, rest
		}
	}
	return head, nil
}

// routeHeader is what stands in front of a datagram of n bytes: a global route header, which
// is an IPv6 header in form, or between IPv4 addresses an IPv4 header in the last bytes.
func (c Config) routeHeader(e *entry, n int) []byte {
	const (
		version   = 6 << 28
		nextIBTA  = 0x1b
		udp       = 17
		udpSize   = 8
		transport = 12 + 8 + 4 // BTH, DETH, ICRC
	)
	payload := (n+3)&^3 + transport
	next := uint8(nextIBTA)
	gid := c.gids()[e.av.GRHGIDFL.Get()>>20&0xff]
	if gid.GIDType == gidRoCEv2 {
		payload += udpSize
		next = udp
	}
	from, to := gid.GID, e.av.RGID
	if netip.AddrFrom16(from).Is4In6() {
		b := append(make([]byte, 20), 0x45, e.av.TClass)
		b = binary.BigEndian.AppendUint16(b, uint16(20+payload))
		b = append(b, 0, 0, 0x40, 0, e.av.HopLimit, next, 0, 0) // not to be fragmented
		return append(append(b, from[12:]...), to[12:]...)
	}
	b := binary.BigEndian.AppendUint32(nil, version|uint32(e.av.TClass)<<20|e.av.GRHGIDFL.Get()&0xfffff)
	b = binary.BigEndian.AppendUint16(b, uint16(payload))
	b = append(b, next, e.av.HopLimit)
	return append(append(b, from[:]...), to[:]...)
}
