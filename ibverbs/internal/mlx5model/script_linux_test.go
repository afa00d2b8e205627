package mlx5model

import (
	"runtime"
	"testing"
	"time"

	"github.com/purerdma/purerdma/ibverbs/driver"
	"github.com/purerdma/purerdma/ibverbs/internal/uverbs"
	"github.com/purerdma/purerdma/internal/offheap"
)

// scene is a part of the script of the differential trace that needs objects of its own.
// testdata/script has the same by libmlx5, under the same name.
type scene struct {
	props
	play  func(*actor)
	meant []map[string]int // differences that are meant in this scene, beside those of all
}

// props is what the objects of a scene are, as struct props of testdata/script.
type props struct {
	typ      driver.QPType
	cap      driver.QPCap
	depth    int
	srq      driver.SRQConfig
	ethernet bool
	access   driver.Access
	cqe      int  // bytes of a completion
	options  bool // ECE is agreed on
}

var scenes = map[string]scene{
	"connected": {props{}, (*actor).connected, []map[string]int{small, asked, queried}},
	"routed": {props{ethernet: true}, func(a *actor) { a.each(one{op: driver.OpSend, receives: 1}, one{op: driver.OpWrite}) },
		[]map[string]int{small, asked, gidEntry(1, 1)}},
	"events":     {props{}, (*actor).events, []map[string]int{small, asked}},
	"receives":   {props{cap: driver.QPCap{SendWR: 4, RecvWR: 5, SendSGE: 2, RecvSGE: 3}}, (*actor).receives, []map[string]int{scatter("10000000 08000000 06000000"), asked}},
	"shared":     {props{srq: driver.SRQConfig{WR: 5, SGE: 2}}, (*actor).shared, []map[string]int{scatter("20000000 00000000 00000000"), asked, waiting}},
	"unreliable": {props{typ: driver.UC}, func(a *actor) { a.each(messages...) }, []map[string]int{small, asked}},
	"datagrams":  {props{typ: driver.UD}, (*actor).datagrams, []map[string]int{scatter("10000000 08000000 05000000"), gidEntry(0, 1)}},
	"addresses": {props{typ: driver.UD, ethernet: true}, (*actor).datagrams,
		[]map[string]int{scatter("10000000 08000000 05000000"), gidEntry(1, 2), gidEntry(2, 2), resolved(linkAddress, ipv4Address)}},
	"inlined":  {props{cap: driver.QPCap{SendWR: 4, RecvWR: 1, SendSGE: 2, RecvSGE: 1, Inline: 300}}, (*actor).inlined, []map[string]int{scatter("20000000 04000000 04000000"), asked}},
	"gathered": {props{cap: driver.QPCap{SendWR: 2, RecvWR: 1, SendSGE: 14, RecvSGE: 1}}, (*actor).gathered, []map[string]int{scatter("10000000 04000000 04000000"), asked}},
	"windows":  {props{access: remote | driver.LocalWrite | driver.MWBind}, (*actor).windows, []map[string]int{small, asked}},
	"large":    {props{depth: 3, cqe: 128}, (*actor).large, []map[string]int{small, asked}},
	"grouped":  {props{typ: driver.UD}, func(a *actor) { a.grouped(linkGroup) }, []map[string]int{scatter("10000000 08000000 05000000"), gidEntry(0, 1)}},
	"heard": {props{typ: driver.UD, ethernet: true}, func(a *actor) { a.grouped(ipv4Group) },
		[]map[string]int{scatter("10000000 08000000 05000000"), gidEntry(1, 2), gidEntry(2, 3), resolved(linkAddress, ipv4Address, ipv4Members)}},
	"agreed":  {props{options: true}, func(a *actor) { a.each(one{op: driver.OpWrite}) }, []map[string]int{small, asked}},
	"resized": {props{depth: 7}, (*actor).resized, []map[string]int{small, asked}},
}

const remote = driver.RemoteWrite | driver.RemoteRead | driver.RemoteAtomic

// actor is our driver's end, which is connected to itself.
type actor struct {
	props
	t          testing.TB
	dev        driver.Context
	pd         driver.PD
	channel    driver.CompChannel
	cq         driver.CQ
	qp         driver.QP
	srq        driver.SRQ
	mr         driver.MR
	ah         []driver.AH
	mem        offheap.Span
	lkey, rkey uint32
}

// act plays a scene on the device of k.
func (s scene) act(t testing.TB, k uverbs.Kernel) {
	a := &actor{props: s.props, t: t}
	a.begin(k)
	s.play(a)
	a.end()
}

func (a *actor) must(err error) {
	a.t.Helper()
	if err != nil {
		a.t.Fatal(err)
	}
}

func (a *actor) begin(k uverbs.Kernel) {
	if a.typ == 0 {
		a.typ = driver.RC
	}
	if a.access == 0 {
		a.access = remote | driver.LocalWrite
	}
	if a.depth == 0 {
		a.depth = 15
	}
	if a.cap == (driver.QPCap{}) {
		a.cap = driver.QPCap{SendWR: 8, RecvWR: 8, SendSGE: 2, RecvSGE: 2, Inline: 32}
	}
	var err error
	a.dev = openOurs(a.t, k, Config{Ethernet: a.ethernet}, max(a.cqe, 64))
	a.pd, err = a.dev.AllocPD()
	a.must(err)
	a.channel, err = a.dev.CreateCompChannel()
	a.must(err)
	a.cq, err = a.dev.CreateCQ(driver.CQConfig{Depth: a.depth, Channel: a.channel})
	a.must(err)
	a.mem, err = offheap.Map(8192, offheap.Options{})
	a.must(err)
	a.mr, err = a.pd.RegMR(a.mem, a.mem.Addr(), a.access)
	a.must(err)
	a.lkey, a.rkey = a.mr.Keys()
	config := driver.QPConfig{Type: a.typ, SendCQ: a.cq, RecvCQ: a.cq, Cap: a.cap}
	if a.props.srq.WR != 0 {
		a.srq, err = a.pd.CreateSRQ(a.props.srq)
		a.must(err)
		config.SRQ = a.srq
		config.Cap.RecvWR, config.Cap.RecvSGE = 0, 0
	}
	a.qp, err = a.pd.CreateQP(config)
	a.must(err)
	if a.typ == driver.UD {
		a.makeAddresses()
	}
	if a.options {
		a.agree()
	}
	a.connect()
}

// agree has the queue pair go on with all options that it has.
func (a *actor) agree() {
	q := a.qp.(driver.ECEQP)
	e, err := q.QueryECE()
	a.must(err)
	a.must(q.SetECE(e))
}

func (a *actor) end() {
	for _, h := range a.ah {
		a.must(h.Close())
	}
	a.must(a.qp.Close())
	a.qp.Purge()
	if a.srq != nil {
		a.must(a.srq.Close())
	}
	a.must(a.mr.Close())
	a.must(a.mem.Release())
	for _, o := range []interface{ Close() error }{a.cq, a.channel, a.pd, a.dev} {
		a.must(o.Close())
	}
}

// self is the address of the port itself.
func (a *actor) self() driver.AHAttr {
	if !a.ethernet {
		return driver.AHAttr{DLID: lid, Port: 1}
	}
	return driver.AHAttr{IsGlobal: true, Port: 1, SL: 2, FlowLabel: 0x54321, SGIDIndex: 1, HopLimit: 3, TrafficClass: 7, DGID: a.gid(1)}
}

func (a *actor) gid(i int) driver.GID { return Config{Ethernet: a.ethernet}.gids()[i].GID }

func (a *actor) makeAddresses() {
	first := a.self()
	second := first
	if a.ethernet {
		second.SGIDIndex, second.FlowLabel, second.StaticRate = 2, 0x00123, 3 // IBV_RATE_10_GBPS
	} else {
		second.IsGlobal, second.SL, second.SrcPathBits, second.FlowLabel, second.HopLimit, second.TrafficClass = true, 5, 3, 0x54321, 3, 7
	}
	second.DGID = a.gid(second.SGIDIndex)
	for _, to := range []driver.AHAttr{first, second} {
		h, err := a.pd.CreateAH(to)
		a.must(err)
		a.ah = append(a.ah, h)
	}
}

const qkey = 0x11111111

func (a *actor) connect() {
	a.t.Helper()
	modify := func(s driver.QPState, attr driver.QPAttr, mask driver.QPMask) {
		a.t.Helper()
		attr.State = s
		a.must(a.qp.Modify(&attr, mask|driver.QPStateMask))
	}
	if a.typ == driver.UD {
		modify(driver.StateInit, driver.QPAttr{Port: 1, QKey: qkey}, driver.QPPort|driver.QPPKeyIndex|driver.QPQKey)
		modify(driver.StateRTR, driver.QPAttr{}, 0)
		modify(driver.StateRTS, driver.QPAttr{SQPSN: 7}, driver.QPSQPSN)
		return
	}
	var rc uint8
	rtr, rts := driver.QPAV|driver.QPPathMTU|driver.QPDestQPN|driver.QPRQPSN, driver.QPSQPSN
	if a.typ == driver.RC {
		rc = 1
		rtr |= driver.QPMaxDestRdAtomic | driver.QPMinRNRTimer
		rts |= driver.QPTimeout | driver.QPRetryCnt | driver.QPRNRRetry | driver.QPMaxQPRdAtomic
	}
	modify(driver.StateInit, driver.QPAttr{Port: 1, Access: a.access}, driver.QPPort|driver.QPPKeyIndex|driver.QPAccessFlags)
	modify(driver.StateRTR, driver.QPAttr{AH: a.self(), PathMTU: driver.MTU1024, DestQPN: a.qp.Num(), RQPSN: 7, MaxDestRdAtomic: rc, MinRNRTimer: rc}, rtr)
	modify(driver.StateRTS, driver.QPAttr{SQPSN: 7, Timeout: 14 * rc, RetryCnt: 6 * rc, RNRRetry: 7 * rc, MaxRdAtomic: rc}, rts)
}

func (a *actor) at(offset int, length uint32) driver.SGE {
	return driver.SGE{Addr: a.mem.Addr() + uint64(offset), Length: length, LKey: a.lkey}
}

// one is a request of two parts of 8 bytes, or with inline data.
type one struct {
	op       driver.Opcode
	flags    driver.SendFlags
	inline   []byte
	receives int
}

func (a *actor) request(o one) driver.SendWR {
	wr := driver.SendWR{ID: 2, Op: o.op, Flags: o.flags, Imm: 0x01020304, SGL: []driver.SGE{a.at(0, 8), a.at(64, 8)}}
	if o.inline != nil {
		wr.SGL, wr.Inline = nil, o.inline
	}
	switch {
	case o.op == driver.OpFetchAdd, o.op == driver.OpCmpSwap:
		wr.SGL, wr.Remote, wr.CompareAdd, wr.Swap = wr.SGL[:1], driver.Remote{Addr: a.mem.Addr() + 512, RKey: a.rkey}, 5, 6
	case a.typ == driver.UD:
		wr.UD = driver.Destination{AH: a.ah[0], QPN: a.qp.Num(), QKey: qkey}
	default:
		wr.Remote = driver.Remote{Addr: a.mem.Addr() + 1024, RKey: a.rkey}
	}
	return wr
}

func (a *actor) post(wrs ...driver.SendWR) {
	a.t.Helper()
	_, err := a.qp.PostSend(wrs)
	a.must(err)
}

// receive posts a list of receives of so many parts each, of 128 bytes.
func (a *actor) receive(parts ...int) {
	a.t.Helper()
	wrs := make([]driver.RecvWR, len(parts))
	for i, n := range parts {
		wrs[i].ID = 1
		for j := range n {
			wrs[i].SGL = append(wrs[i].SGL, a.at(2048+512*i+128*j, 128))
		}
	}
	post := a.qp.PostRecv
	if a.srq != nil {
		post = a.srq.PostRecv
	}
	_, err := post(wrs)
	a.must(err)
}

// await takes as many completions, all of success.
func (a *actor) await(n int) {
	a.t.Helper()
	for end := time.Now().Add(patience); n > 0; {
		if time.Now().After(end) {
			a.t.Fatalf("%d completions have not come", n)
		}
		var wcs [1]driver.WC
		got, err := a.cq.Poll(wcs[:])
		a.must(err)
		if got != 0 && wcs[0].Status != driver.Success {
			a.t.Fatalf("completion %+v", wcs[0])
		}
		n -= got
		runtime.Gosched()
	}
}

// each posts requests one after the other, each signaled, behind the receives that they
// need.
func (a *actor) each(os ...one) {
	a.t.Helper()
	for _, o := range os {
		o.flags |= driver.Signaled
		if o.receives != 0 {
			a.receive(1)
		}
		a.post(a.request(o))
		a.await(1 + o.receives)
	}
}
