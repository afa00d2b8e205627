package drivertest

import (
	"errors"
	"testing"

	"github.com/purerdma/purerdma/ibverbs/driver"
	"github.com/purerdma/purerdma/internal/offheap"
	"golang.org/x/sys/unix"
)

func testQueries(t *testing.T, cfg Config) {
	a, b := open(t, cfg)
	for _, s := range []*side{a, b} {
		if s.attr.MaxQP < 1 || s.attr.MaxQPWR < 1 || s.attr.MaxSGE < 1 || s.attr.MaxCQE < 1 || s.attr.Ports < s.Port {
			t.Errorf("limits of the device make no sense: %+v", s.attr)
		}
		if s.port.State != driver.PortActive || !s.port.ActiveMTU.Valid() || s.port.ActiveMTU > s.port.MaxMTU {
			t.Errorf("port is not usable: %+v", s.port)
		}
		gids, err := s.Context.GIDs(s.Port)
		must(t, "query GIDs", err)
		for i, g := range gids {
			if g.GID.IsZero() || i > 0 && g.Index <= gids[i-1].Index || g.Index >= s.port.GIDTableLen {
				t.Errorf("GID table holds %+v at %d", g, i)
			}
		}
		for _, port := range []int{-1, 0, s.attr.Ports + 1, 1 << 20} {
			if _, err := s.Context.QueryPort(port); err == nil {
				t.Errorf("port %d of %d was answered", port, s.attr.Ports)
			}
			if _, err := s.Context.GIDs(port); err == nil {
				t.Errorf("GIDs of port %d of %d were answered", port, s.attr.Ports)
			}
		}
		testProbes(t, s)
	}
}

// testProbes sees that the call says what the probe said.
func testProbes(t *testing.T, s *side) {
	pd, err := s.Context.AllocPD()
	must(t, "alloc PD", err)
	defer func() { check(t, "close PD", pd.Close()) }()
	for _, f := range []driver.Feature{
		driver.FeatureDMABuf, driver.FeatureMW1, driver.FeatureMW2, driver.FeatureECE, driver.FeatureSRQ, driver.FeatureAH,
		driver.FeatureResizeCQ, driver.FeatureModerateCQ, driver.FeatureMulticast, driver.FeatureUC, driver.FeatureUD,
		driver.FeatureAtomics, driver.FeatureOnDemand, driver.FeatureFlowLabelPort, driver.FeatureCounters, driver.FeatureReregMR,
		driver.FeatureResizeSRQ, "no such feature",
	} {
		err := s.Context.Probe(f)
		var not *driver.NotSupportedError
		if err != nil && (!errors.As(err, &not) || not.Feature != f || not.By == 0) {
			t.Errorf("probe of %s: %v, want a NotSupportedError that names it and who lacks it", f, err)
		}
	}
	if s.Context.Probe("no such feature") == nil {
		t.Error("a feature that does not exist is there")
	}
	testCounters(t, s)
	if s.Context.Probe(driver.FeatureDMABuf) != nil {
		_, err := pd.RegDMABuf(driver.DMABuf{FD: -1, Length: 4096}, driver.LocalWrite)
		wantErr(t, "DMA-BUF without the feature", err, driver.ErrNotSupported)
	}
	if s.Context.Probe(driver.FeatureModerateCQ) != nil {
		cq, err := s.Context.CreateCQ(driver.CQConfig{Depth: 4})
		must(t, "create CQ", err)
		wantErr(t, "CQ moderation without the feature", cq.Moderate(16, 100), driver.ErrNotSupported)
		check(t, "close CQ", cq.Close())
	}
	if s.Context.Probe(driver.FeatureSRQ) != nil {
		_, err := pd.CreateSRQ(driver.SRQConfig{WR: 4, SGE: 1})
		wantErr(t, "SRQ without the feature", err, driver.ErrNotSupported)
	}
}

// testCounters sees that names are there and differ, and no port but the device's
// counts.
func testCounters(t *testing.T, s *side) {
	r, ok := s.Context.(driver.CounterReader)
	if has := s.Context.Probe(driver.FeatureCounters) == nil; !ok || !has {
		if has && !ok {
			t.Error("the probe finds counters that cannot be read")
		}
		return
	}
	counters, err := r.Counters(1)
	check(t, "counters", err)
	names := map[string]bool{}
	for _, c := range counters {
		if c.Name == "" || names[c.Name] {
			t.Errorf("counter %q is there twice, or has no name", c.Name)
		}
		names[c.Name] = true
	}
	if len(names) == 0 {
		t.Error("no counter, and the probe finds some")
	}
	if _, err := r.Counters(s.attr.Ports + 1); err == nil {
		t.Errorf("port %d of %d counts", s.attr.Ports+1, s.attr.Ports)
	}
}

// testLimits asks for too much, and sees that nothing is left of it: open's
// cleanup closes the context.
func testLimits(t *testing.T, cfg Config) {
	s, _ := open(t, cfg)
	for _, depth := range []int{-1, 0, s.attr.MaxCQE + 1} {
		if q, err := s.Context.CreateCQ(driver.CQConfig{Depth: depth}); err == nil {
			t.Errorf("CQ of %d was made, the device has up to %d", depth, s.attr.MaxCQE)
			check(t, "close CQ", q.Close())
		}
	}
	q := s.newCQ(driver.CQConfig{Depth: 10})
	if q.Depth() < 10 {
		t.Errorf("CQ has depth %d, want 10 at least", q.Depth())
	}
	pd, err := s.Context.AllocPD()
	must(t, "alloc PD", err)
	t.Cleanup(func() { check(t, "close PD", pd.Close()) })
	for _, c := range []driver.QPCap{
		{SendWR: s.attr.MaxQPWR + 1, RecvWR: 1, SendSGE: 1, RecvSGE: 1},
		{SendWR: 1, RecvWR: s.attr.MaxQPWR + 1, SendSGE: 1, RecvSGE: 1},
		{SendWR: 1, RecvWR: 1, SendSGE: s.attr.MaxSGE + 1, RecvSGE: 1},
		{SendWR: 1, RecvWR: 1, SendSGE: 1, RecvSGE: s.attr.MaxSGE + 1},
		{SendWR: 1, RecvWR: 1, SendSGE: 1, RecvSGE: 1, Inline: 1 << 24},
		{SendWR: -1, RecvWR: 1, SendSGE: 1, RecvSGE: 1},
	} {
		if qp, err := pd.CreateQP(driver.QPConfig{Type: driver.RC, SendCQ: q.CQ, RecvCQ: q.CQ, Cap: c}); err == nil {
			t.Errorf("QP of %+v was made on a device of %+v", c, s.attr)
			check(t, "close QP", qp.Close())
		}
	}
	want := driver.QPCap{SendWR: 5, RecvWR: 3, SendSGE: 2, RecvSGE: 1, Inline: 17}
	qp, err := pd.CreateQP(driver.QPConfig{Type: driver.RC, SendCQ: q.CQ, RecvCQ: q.CQ, Cap: want})
	must(t, "create QP", err)
	if got := qp.Cap(); got.SendWR < want.SendWR || got.RecvWR < want.RecvWR || got.SendSGE < want.SendSGE ||
		got.RecvSGE < want.RecvSGE || got.Inline < want.Inline {
		t.Errorf("QP has %+v, less than %+v", got, want)
	}
	if n := qp.Num(); n == 0 || n > 0xffffff {
		t.Errorf("QP number %#x", n)
	}
	check(t, "close QP", qp.Close())
}

// testMemory is registration: what is refused, what keys cover, and that memory
// lives as long as its last MR.
func testMemory(t *testing.T, cfg Config) {
	a, b := connect(t, cfg, setup{})
	page := unix.Getpagesize()
	ok := alloc(t, 4*page)
	for _, c := range []struct {
		name string
		mem  driver.Span
		iova uint64
		a    driver.Access
	}{
		{"no bytes", driver.Span{}, 0, driver.LocalWrite},
		{"remote write without local", ok, ok.Addr(), driver.RemoteWrite},
		{"remote atomic without local", ok, ok.Addr(), driver.RemoteAtomic},
		{"another offset within the page", ok, ok.Addr() + 8, driver.LocalWrite},
	} {
		if mr, err := a.pd.RegMR(c.mem, c.iova, c.a); err == nil {
			t.Errorf("registered: %s", c.name)
			check(t, "close MR", mr.Close())
		}
	}

	// An address that is not the processor's.
	const iova = 0x7_0000_0000
	virtual, err := b.pd.RegMR(ok, iova, a.rights())
	must(t, "register at an address of its own", err)
	_, rkey := virtual.Keys()
	copy(a.bytes(0, 8), "virtual!")
	a.postSend(driver.SendWR{ID: 1, Op: driver.OpWrite, Flags: driver.Signaled, SGL: []driver.SGE{a.sge(0, 8)},
		Remote: driver.Remote{Addr: iova + uint64(page) - 4, RKey: rkey}})
	a.one(1, driver.Success)
	if got := string(ok.Bytes()[page-4 : page+4]); got != "virtual!" {
		t.Errorf("memory at its own address holds %q", got)
	}
	check(t, "close MR", virtual.Close())

	// A part of a mapping that begins in the middle of a page.
	part, err := ok.Slice(page/2+24, page)
	must(t, "slice", err)
	mr := b.reg(b.pd, part, a.rights())
	_, rkey = mr.Keys()
	a.postSend(driver.SendWR{ID: 2, Op: driver.OpWrite, Flags: driver.Signaled, SGL: []driver.SGE{a.sge(0, 8)},
		Remote: driver.Remote{Addr: part.Addr(), RKey: rkey}})
	a.one(2, driver.Success)
	if got := string(part.Bytes()[:8]); got != "virtual!" {
		t.Errorf("part of a mapping holds %q", got)
	}

	// Released before its MR is closed.
	short, err := offheap.Map(page, offheap.Options{})
	must(t, "map memory", err)
	last, err := b.pd.RegMR(short, short.Addr(), b.rights())
	must(t, "register memory", err)
	view := short.Bytes()
	check(t, "release", short.Release())
	_, rkey = last.Keys()
	a.postSend(driver.SendWR{ID: 3, Op: driver.OpWrite, Flags: driver.Signaled, SGL: []driver.SGE{a.sge(0, 8)},
		Remote: driver.Remote{Addr: short.Addr(), RKey: rkey}})
	a.one(3, driver.Success)
	if string(view[:8]) != "virtual!" {
		t.Errorf("released memory holds %q while its MR is open", view[:8])
	}
	check(t, "close MR", last.Close())
	if short.Retain() == nil {
		t.Error("memory is still mapped after its last MR")
	}
	if _, err := b.pd.RegMR(short, short.Addr(), b.rights()); err == nil {
		t.Error("unmapped memory was registered")
	}
}
