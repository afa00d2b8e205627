package mlx5model

import (
	stdcontext "context"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/purerdma/purerdma/ibverbs/driver"
	"github.com/purerdma/purerdma/internal/offheap"
)

// statusPlayer plays a script of statuses by our driver, as testdata/status does by
// libmlx5. Its ends, A and B, are of one context.
type statusPlayer struct {
	t     testing.TB
	m     *Model
	dev   driver.Context
	pd    driver.PD
	other driver.PD
	mem   offheap.Span
	mrs   map[string]driver.MR
	ah    driver.AH
	srq   driver.SRQ
	ends  [2]statusEnd
	wrs   []driver.SendWR
	by    *statusEnd // who posts them
	out   strings.Builder
}

type statusEnd struct {
	name         string
	typ          driver.QPType
	qp           driver.QP
	cq           [2]driver.CQ // of sends and of receives
	mw           driver.MW
	access       driver.Access
	reads, gives int
	qkey         uint32
}

// The room of an end in memory, where in it the peer's requests go, and a key that nothing has.
const (
	statusRoom   = 1 << 14
	statusTarget = statusRoom / 2
	noKey        = 0x7f7f7f00
)

// playStatuses is what comes of a script on a model of its own.
func playStatuses(t testing.TB, c Config, script string) string {
	t.Helper()
	p := &statusPlayer{t: t, m: New(c), mrs: map[string]driver.MR{}}
	p.begin()
	for line := range strings.Lines(script) {
		if w := strings.Fields(line); len(w) > 0 {
			p.step(w)
		}
	}
	p.end()
	return p.out.String()
}

func (p *statusPlayer) must(err error) {
	p.t.Helper()
	if err != nil {
		p.t.Fatal(err)
	}
}

func (p *statusPlayer) begin() {
	p.dev = openOurs(p.t, NewLocal(p.m), p.m.config, 64)
	var err error
	for _, pd := range []*driver.PD{&p.pd, &p.other} {
		*pd, err = p.dev.AllocPD()
		p.must(err)
	}
	p.mem, err = offheap.Map(2*statusRoom, offheap.Options{})
	p.must(err)
	for name, access := range map[string]driver.Access{
		"all": remote | driver.LocalWrite | driver.MWBind, "local": driver.LocalWrite, "read": driver.RemoteRead, "other": driver.LocalWrite | driver.RemoteWrite,
	} {
		pd := p.pd
		if name == "other" {
			pd = p.other
		}
		p.mrs[name], err = pd.RegMR(p.mem, p.mem.Addr(), access)
		p.must(err)
	}
	p.ah, err = p.pd.CreateAH(driver.AHAttr{DLID: lid, Port: 1})
	p.must(err)
	for i := range p.ends {
		e := &p.ends[i]
		e.name = string(rune('A' + i))
		for j := range e.cq {
			e.cq[j], err = p.dev.CreateCQ(driver.CQConfig{Depth: 31})
			p.must(err)
		}
	}
}

func (p *statusPlayer) end() {
	for _, e := range p.ends {
		p.must(e.cq[0].Close())
		p.must(e.cq[1].Close())
	}
	p.must(p.ah.Close())
	for _, m := range p.mrs {
		p.must(m.Close())
	}
	p.must(p.mem.Release())
	for _, o := range []interface{ Close() error }{p.other, p.pd, p.dev} {
		p.must(o.Close())
	}
}

// step does what a line says.
func (p *statusPlayer) step(w []string) {
	p.t.Helper()
	number := func(i int) (n uint32) {
		_, err := fmt.Sscan(w[i], &n)
		p.must(err)
		return n
	}
	var e *statusEnd
	if len(w) > 1 {
		e = &p.ends[map[bool]int{false: 0, true: 1}[w[1] == "B"]]
	}
	switch w[0] {
	case "case":
		p.open(map[string]driver.QPType{"RC": driver.RC, "UC": driver.UC, "UD": driver.UD}[w[1]], w[2] == "1")
	case "set":
		switch n := number(3); w[2] {
		case "access":
			e.access = driver.Access(n)
		case "reads":
			e.reads = int(n)
		case "gives":
			e.gives = int(n)
		case "qkey":
			e.qkey = n
		}
	case "join":
		p.join(e, p.peer(e))
	case "recv":
		p.receive(e, uint64(number(2)), number(3), w[4])
	case "add":
		p.add(e, w[2], uint64(number(3)), number(4), w[5], w[6], uint64(number(7)), number(8))
	case "post":
		p.post()
	case "await":
		p.await(e, map[string]int{"s": 0, "r": 1}[w[2]], int(number(3)))
	case "move":
		p.move(e, w[2])
	case "end":
		p.report()
		p.close()
	default:
		p.t.Fatalf("no step %s", w[0])
	}
}

// open begins a case. Receives of B go to an SRQ if it is to be shared.
func (p *statusPlayer) open(typ driver.QPType, shared bool) {
	p.t.Helper()
	var err error
	if shared {
		p.srq, err = p.pd.CreateSRQ(driver.SRQConfig{WR: 7, SGE: 1, Cookie: 9})
		p.must(err)
	}
	for i := range p.ends {
		e := &p.ends[i]
		e.typ, e.access, e.reads, e.gives, e.qkey = typ, remote|driver.LocalWrite, 4, 4, qkey
		c := driver.QPConfig{Type: typ, SendCQ: e.cq[0], RecvCQ: e.cq[1], Cap: driver.QPCap{SendWR: 8, RecvWR: 8, SendSGE: 1, RecvSGE: 1}, Cookie: uint64(i + 1)}
		if i == 1 && shared {
			c.SRQ, c.Cap.RecvWR, c.Cap.RecvSGE = p.srq, 0, 0
		}
		e.qp, err = p.pd.CreateQP(c)
		p.must(err)
		e.mw, err = p.pd.AllocMW()
		p.must(err)
	}
}

func (p *statusPlayer) close() {
	p.t.Helper()
	for _, e := range p.ends {
		p.must(e.qp.Close())
		e.qp.Purge()
		p.must(e.mw.Close())
	}
	if p.srq != nil {
		p.must(p.srq.Close())
		p.srq = nil
	}
}

func (p *statusPlayer) modify(e *statusEnd, s driver.QPState, a driver.QPAttr, mask driver.QPMask) {
	p.t.Helper()
	a.State = s
	p.must(e.qp.Modify(&a, mask|driver.QPStateMask))
}

func (p *statusPlayer) move(e *statusEnd, state string) {
	p.t.Helper()
	switch state {
	case "RTS":
		p.modify(e, driver.StateRTS, driver.QPAttr{CurState: driver.StateSQE}, driver.QPCurState)
	case "ERR":
		p.modify(e, driver.StateErr, driver.QPAttr{}, 0)
	default:
		p.modify(e, driver.StateReset, driver.QPAttr{}, 0)
		e.qp.Purge()
	}
}

func (p *statusPlayer) join(e, peer *statusEnd) {
	p.t.Helper()
	if e.typ == driver.UD {
		p.modify(e, driver.StateInit, driver.QPAttr{Port: 1, QKey: e.qkey}, driver.QPPort|driver.QPPKeyIndex|driver.QPQKey)
		p.modify(e, driver.StateRTR, driver.QPAttr{}, 0)
		p.modify(e, driver.StateRTS, driver.QPAttr{}, driver.QPSQPSN)
		return
	}
	rtr, rts := driver.QPAV|driver.QPPathMTU|driver.QPDestQPN|driver.QPRQPSN, driver.QPSQPSN
	if e.typ == driver.RC {
		rtr |= driver.QPMaxDestRdAtomic | driver.QPMinRNRTimer
		rts |= driver.QPTimeout | driver.QPRetryCnt | driver.QPRNRRetry | driver.QPMaxQPRdAtomic
	}
	p.modify(e, driver.StateInit, driver.QPAttr{Port: 1, Access: e.access}, driver.QPPort|driver.QPPKeyIndex|driver.QPAccessFlags)
	p.modify(e, driver.StateRTR, driver.QPAttr{AH: driver.AHAttr{DLID: lid, Port: 1}, PathMTU: driver.MTU1024, DestQPN: peer.qp.Num(), MaxDestRdAtomic: uint8(e.gives), MinRNRTimer: 1}, rtr)
	p.modify(e, driver.StateRTS, driver.QPAttr{Timeout: 1, RetryCnt: 1, RNRRetry: 1, MaxRdAtomic: uint8(e.reads)}, rts)
}

func (p *statusPlayer) peer(e *statusEnd) *statusEnd {
	if e == &p.ends[0] {
		return &p.ends[1]
	}
	return &p.ends[0]
}

// room is the address of an end's memory.
func (p *statusPlayer) room(e *statusEnd) uint64 {
	if e == &p.ends[1] {
		return p.mem.Addr() + statusRoom
	}
	return p.mem.Addr()
}

// keys of a registration, or of B's window.
func (p *statusPlayer) keys(name string) (lkey, rkey uint32) {
	if name == "window" {
		return noKey, nextKey(p.ends[1].mw.RKey())
	}
	if m := p.mrs[name]; m != nil {
		return m.Keys()
	}
	return noKey, noKey
}

func (p *statusPlayer) at(e *statusEnd, length uint32, key string) []driver.SGE {
	lkey, _ := p.keys(key)
	return []driver.SGE{{Addr: p.room(e), Length: length, LKey: lkey}}
}

func (p *statusPlayer) receive(e *statusEnd, id uint64, length uint32, key string) {
	p.t.Helper()
	post := e.qp.PostRecv
	if e == &p.ends[1] && p.srq != nil {
		post = p.srq.PostRecv
	}
	_, err := post([]driver.RecvWR{{ID: id, SGL: p.at(e, length, key)}})
	p.must(err)
}

// statusOps are the operations of the script. One with "-" behind it is not signaled.
var statusOps = map[string]driver.Opcode{
	"send": driver.OpSend, "imm": driver.OpSendWithImm, "write": driver.OpWrite, "writeimm": driver.OpWriteWithImm, "read": driver.OpRead,
	"add": driver.OpFetchAdd, "swap": driver.OpCmpSwap, "bind": driver.OpBindMW, "free": driver.OpLocalInv, "sendinv": driver.OpSendWithInv,
}

// add puts a request on the list that is posted next.
func (p *statusPlayer) add(e *statusEnd, op string, id uint64, length uint32, key, of string, offset uint64, imm uint32) {
	p.t.Helper()
	peer := p.peer(e)
	_, rkey := p.keys(of)
	name, unsignaled := strings.CutSuffix(op, "-")
	code, ok := statusOps[name]
	if !ok {
		p.t.Fatalf("no operation %s", op)
	}
	wr := driver.SendWR{ID: id, Op: code, Imm: imm, SGL: p.at(e, length, key)}
	if !unsignaled {
		wr.Flags = driver.Signaled
	}
	switch code {
	case driver.OpBindMW:
		wr.SGL = nil
		wr.Bind = &driver.BindMW{MW: e.mw, MR: p.mrs[key], Addr: p.room(e) + statusTarget, Length: uint64(length), Access: driver.RemoteWrite, RKey: nextKey(e.mw.RKey())}
	case driver.OpLocalInv:
		wr.SGL, wr.Imm = nil, nextKey(e.mw.RKey())
	default:
		if code == driver.OpSendWithInv {
			wr.Imm = rkey
		}
		wr.Remote = driver.Remote{Addr: p.room(peer) + statusTarget + offset, RKey: rkey}
		wr.UD = driver.Destination{AH: p.ah, QPN: peer.qp.Num(), QKey: qkey}
	}
	p.wrs, p.by = append(p.wrs, wr), e
}

func (p *statusPlayer) post() {
	n, err := p.by.qp.PostSend(p.wrs)
	if err != nil {
		p.t.Fatalf("request %d: %v", p.wrs[n].ID, err)
	}
	p.wrs = nil
}

// come tells of a completion. The vendor's syndrome is that of an error.
func (p *statusPlayer) come(wc *driver.WC, e *statusEnd, queue int) {
	p.t.Helper()
	if wc.QPN != e.qp.Num() {
		p.t.Errorf("a completion of queue pair %#x, want %#x", wc.QPN, e.qp.Num())
	}
	vendor := wc.VendorErr
	if wc.Status == driver.Success {
		vendor = 0
	}
	fmt.Fprintf(&p.out, "wc %s %d %d %d %d\n", e.name, queue, wc.ID, uint8(wc.Status), vendor)
}

func (p *statusPlayer) await(e *statusEnd, queue, n int) {
	p.t.Helper()
	var wcs [1]driver.WC
	for end := time.Now().Add(patience); n > 0; {
		if time.Now().After(end) {
			p.t.Fatalf("%d completions of %s have not come; so far\n%s", n, e.name, &p.out)
		}
		got, err := e.cq[queue].Poll(wcs[:])
		p.must(err)
		if got == 0 {
			runtime.Gosched()
			continue
		}
		p.come(&wcs[0], e, queue)
		n -= got
	}
}

// report tells the states of both ends, what there is in the queues in addition, and the
// asynchronous events. What the model does at once is done when it has answered.
func (p *statusPlayer) report() {
	p.t.Helper()
	for i := range p.ends {
		a, err := p.ends[i].qp.Query()
		p.must(err)
		fmt.Fprintf(&p.out, "state %s %d\n", p.ends[i].name, uint8(a.State))
	}
	var wcs [1]driver.WC
	for i := range p.ends {
		for j, q := range p.ends[i].cq {
			for n := 1; n > 0; {
				var err error
				n, err = q.Poll(wcs[:])
				p.must(err)
				if n > 0 {
					p.come(&wcs[0], &p.ends[i], j)
				}
			}
		}
	}
	ctx, cancel := stdcontext.WithTimeout(p.t.Context(), patience)
	defer cancel()
	for range p.told() {
		e, err := p.dev.NextEvent(ctx)
		p.must(err)
		fmt.Fprintf(&p.out, "event %c %d\n", 'A'+rune(e.Cookie)-1, uint8(e.Type))
	}
	fmt.Fprintln(&p.out, "end")
}

// told is how many asynchronous events the model has about the queue pairs.
func (p *statusPlayer) told() (n uint32) {
	p.m.mu.Lock()
	defer p.m.mu.Unlock()
	for c := range p.m.contexts {
		n += c.told[1] + c.told[2]
	}
	return n
}
