package ibverbs_test

import (
	"errors"
	"math"
	"net/netip"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/purerdma/purerdma/ibverbs"
	"github.com/purerdma/purerdma/ibverbs/driver/memdriver"
	"github.com/purerdma/purerdma/ibverbs/softroce"
	"github.com/purerdma/purerdma/mr"
)

// A device that says EINVAL and no more is not all that a caller gets to read: the error names the field, and what can be.
func TestRefusalsNameTheField(t *testing.T) {
	drv := softroce.New(softroce.Config{Addrs: []netip.Addr{netip.MustParseAddr("10.9.0.1")}, Network: softroce.OnSim(softroce.NewSim(softroce.SimConfig{}))})
	dev := get(ibverbs.Open("soft0", ibverbs.WithDrivers(drv)))(t)
	defer func() { try(t, dev.Close()) }()
	x := newTested(t, dev)
	limits := get(dev.Query())(t)
	cq := get(dev.CreateCQ(4, ibverbs.WithEvents()))(t)
	srq := get(x.pd.CreateSRQ(ibverbs.SRQConfig{WR: 4, SGE: 1}))(t)
	reset := newQP(t, x.pd, cq, cq)
	made := func(err error) error {
		if err == nil {
			t.Error("it was made")
		}
		return err
	}
	create := func(change func(*ibverbs.QPConfig)) func() error {
		return func() error {
			c := ibverbs.QPConfig{SendCQ: cq, RecvCQ: cq, Cap: ibverbs.QPCap{SendWR: 1, RecvWR: 1}}
			change(&c)
			_, err := x.pd.CreateQP(c)
			return made(err)
		}
	}
	createSRQ := func(c ibverbs.SRQConfig) func() error {
		return func() error { _, err := x.pd.CreateSRQ(c); return made(err) }
	}
	register := func(iova uint64, a ibverbs.Access) func() error {
		return func() error { _, err := x.pd.RegMRIOVA(x.buf, x.buf.Addr()+iova, a); return made(err) }
	}
	modify := func(q *ibverbs.QP, a ibverbs.QPAttr, mask ibverbs.QPMask) func() error {
		return func() error { return q.Modify(&a, mask) }
	}
	const toInit = ibverbs.QPStateMask | ibverbs.QPPKeyIndex | ibverbs.QPPort | ibverbs.QPAccessFlags
	send := func(change func(*ibverbs.SendWR)) func() error {
		return func() error {
			good, bad := x.write(1), x.write(2)
			change(&bad)
			_, err := x.a.PostSend(good, bad)
			one(t, x.cq)
			return err
		}
	}
	for _, c := range []struct {
		name string
		call func() error
		want string
	}{
		{"CQ depth", func() error { _, err := dev.CreateCQ(limits.MaxCQE + 1); return made(err) }, "the depth is 1048577"},
		{"CQ vector", func() error { _, err := dev.CreateCQ(1, ibverbs.WithVector(7)); return made(err) }, "vector is 7: invalid argument (0 to 0"},
		{"CQ of a zero channel", func() error { _, err := dev.CreateCQ(1, ibverbs.WithChannel(&ibverbs.CompChannel{})); return made(err) }, "channel is of another"},
		{"CQ resize", func() error { return cq.Resize(math.MaxInt) }, "1 to 1048576"},
		{"CQ moderation", func() error { return cq.Moderate(-3, time.Second) }, "the count is -3"},
		{"CQ moderation period", func() error { return cq.Moderate(3, time.Hour) }, "the period in microseconds is 3600000000"},
		{"SRQ WR", createSRQ(ibverbs.SRQConfig{WR: 1 << 30}), "SRQConfig.WR is 1073741824"},
		{"SRQ SGE", createSRQ(ibverbs.SRQConfig{WR: 1, SGE: -1}), "SRQConfig.SGE is -1"},
		{"SRQ limit", createSRQ(ibverbs.SRQConfig{WR: 4, SGE: 1, Limit: 5}), "SRQConfig.Limit is 5: invalid argument (0 to 4"},
		{"SRQ limit later", func() error { return srq.SetLimit(99) }, "the limit is 99"},
		{"SRQ resize", func() error { return srq.Resize(1 << 30) }, "SRQConfig.WR is 1073741824"},
		{"QP type", create(func(c *ibverbs.QPConfig) { c.Type = 77 }), "QPConfig.Type is QPType(77)"},
		{"QP SendWR", create(func(c *ibverbs.QPConfig) { c.Cap.SendWR = -1 }), "QPCap.SendWR is -1"},
		{"QP RecvWR", create(func(c *ibverbs.QPConfig) { c.Cap.RecvWR = 1 << 32 }), "QPCap.RecvWR is 4294967296"},
		{"QP SendSGE", create(func(c *ibverbs.QPConfig) { c.Cap.SendSGE = 1000 }), "QPCap.SendSGE is 1000: invalid argument (0 to 32"},
		{"QP RecvSGE", create(func(c *ibverbs.QPConfig) { c.Cap.RecvSGE = 1000 }), "QPCap.RecvSGE is 1000"},
		{"QP inline", create(func(c *ibverbs.QPConfig) { c.Cap.Inline = 1 << 20 }), "QPCap.Inline is 1048576"},
		{"QP of a zero CQ", create(func(c *ibverbs.QPConfig) { c.SendCQ = &ibverbs.CQ{} }), "the CQ is of another device"},
		{"QP of a zero SRQ", create(func(c *ibverbs.QPConfig) { c.SRQ = &ibverbs.SRQ{} }), "the SRQ is of another device"},
		{"MR right", register(0, 1<<15), "bit 15, which is no right"},
		{"MR rare right", register(0, ibverbs.ZeroBased), "ZERO_BASED, which not every device takes"},
		{"MR iova", register(8, ibverbs.LocalWrite), "differ in their offset within a page"},
		{"MR of a nil buffer", func() error { _, err := x.pd.RegMR((*mr.Buffer)(nil), ibverbs.LocalWrite); return made(err) }, "no memory"},
		{"MR re-registered with a zero PD", func() error { return x.mem.Reregister(ibverbs.MRChange{PD: &ibverbs.PD{}}) }, "the PD is of another device"},
		{"MR re-registered with rights", func() error { return x.mem.Reregister(ibverbs.MRChange{SetAccess: true, Access: 1 << 15}) }, "bit 15"},
		{"DMA-BUF", func() error { _, err := x.pd.RegDMABuf(ibverbs.DMABuf{}, 0); return made(err) }, "DMABuf.Length is 0"},
		{"state", modify(reset, ibverbs.QPAttr{State: ibverbs.StateRTS}, ibverbs.QPStateMask), "does not go from RESET to RTS, but to RESET or INIT or ERR"},
		{"attribute too few", modify(reset, ibverbs.QPAttr{State: ibverbs.StateInit, Port: 1}, toInit&^ibverbs.QPPort), "lacks PORT"},
		{"attribute too many", modify(reset, ibverbs.QPAttr{State: ibverbs.StateInit, Port: 1}, toInit|ibverbs.QPTimeout), "does not take TIMEOUT"},
		{"wrong present state", modify(reset, ibverbs.QPAttr{CurState: ibverbs.StateRTS}, ibverbs.QPCurState), "CurState is RTS, and the QP is in RESET"},
		{"port", modify(reset, ibverbs.QPAttr{State: ibverbs.StateInit, Port: 3}, toInit), "QPAttr.Port is 3: invalid argument (1 to 1"},
		{"P_Key", modify(reset, ibverbs.QPAttr{State: ibverbs.StateInit, Port: 1, PKeyIndex: 9}, toInit), "QPAttr.PKeyIndex is 9: invalid argument (0 to 0"},
		{"rights", modify(reset, ibverbs.QPAttr{State: ibverbs.StateInit, Port: 1, Access: 1 << 30}, toInit), "QPAttr.Access has bit 30"},
		{"RNR timer", modify(x.a.QP, ibverbs.QPAttr{MinRNRTimer: 32}, ibverbs.QPMinRNRTimer), "QPAttr.MinRNRTimer is 32: invalid argument (0 to 31"},
		{"operation", send(func(wr *ibverbs.SendWR) { wr.Op = 99 }), "SendWR.Op is IBV_WR 99"},
		{"flags", send(func(wr *ibverbs.SendWR) { wr.Flags |= 1 << 7 }), "SendWR.Flags has bit 7"},
		{"inline and memory", send(func(wr *ibverbs.SendWR) { wr.Inline = []byte("x") }), "both set"},
		{"inline read", send(func(wr *ibverbs.SendWR) { wr.Op, wr.SGL, wr.Inline = ibverbs.OpRead, nil, []byte("x") }), "IBV_WR_RDMA_READ needs registered"},
		{"bind of data", send(func(wr *ibverbs.SendWR) { wr.Op = ibverbs.OpBindMW }), "IBV_WR_BIND_MW has no data"},
		{"bind of nothing", send(func(wr *ibverbs.SendWR) { wr.Op, wr.SGL = ibverbs.OpBindMW, nil }), "SendWR.Bind is nil"},
		{"bind of a zero window", send(func(wr *ibverbs.SendWR) { wr.Op, wr.SGL, wr.Bind = ibverbs.OpBindMW, nil, &ibverbs.BindMW{} }), "what MW.Bind makes"},
	} {
		t.Run(c.name, func(t *testing.T) {
			err := c.call()
			var e *ibverbs.Error
			if !errors.As(err, &e) || !errors.Is(err, syscall.EINVAL) || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want EINVAL with %q", err, c.want)
			}
		})
	}
	x.works(t)
}

// Options and drivers that are nil count for nothing.
func TestNilOptions(t *testing.T) {
	dev := get(ibverbs.Open("mem0", nil, ibverbs.WithDrivers(nil, memdriver.New(memdriver.Config{})), ibverbs.WithLogger(nil)))(t)
	try(t, get(dev.CreateCQ(1, nil, ibverbs.WithChannel(nil)))(t).Close())
	try(t, dev.Close())
}
