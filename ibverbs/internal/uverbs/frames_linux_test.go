package uverbs_test

import (
	"encoding/binary"
	"errors"
	"os"
	"reflect"
	"strings"
	"syscall"
	"testing"

	"github.com/purerdma/purerdma/ibverbs/driver"
	"github.com/purerdma/purerdma/ibverbs/internal/uapi"
	"github.com/purerdma/purerdma/ibverbs/internal/uverbs"
	"github.com/purerdma/purerdma/ibverbs/internal/uverbs/uverbstest"
)

// TestFrames compares every command with testdata/frames.txt: inputs of up
// to eight bytes inline, constants eight bytes whatever their type, handles
// without a length. The bytes are little endian.
func TestFrames(t *testing.T) {
	if binary.NativeEndian.Uint16([]byte{1, 0}) != 1 {
		t.Skip("the expected bytes are those of a little endian machine")
	}
	k := uverbstest.NewFakeKernel(testDev)
	tr := &uverbstest.Tracer{Kernel: k}
	d, err := uverbs.Open(tr, testNode)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(d.GetContext(uverbs.UHW{}))
	async, err := d.AllocAsyncEvents()
	must(err)
	defer async.Close()
	_, err = d.QueryDevice()
	must(err)
	_, err = d.QueryPort(1)
	must(err)
	_, err = d.GIDs(1, 2, 1)
	if !errors.Is(err, driver.ErrNotSupported) {
		t.Fatal(err)
	}
	pd, err := d.AllocPD(uverbs.UHW{})
	must(err)
	mr, err := d.RegMR(pd, 0x1000, 0x20, 0x3000, driver.LocalWrite|driver.RemoteRead, uverbs.UHW{})
	must(err)
	_, err = d.RegDMABufMR(pd, driver.DMABuf{FD: 6, Offset: 0x1000, Length: 0x2000, IOVA: 0x5000}, driver.LocalWrite)
	must(err)
	ch, err := d.CreateCompChannel()
	must(err)
	defer ch.Close()
	cq, _, err := d.CreateCQ(uverbs.CQConfig{Depth: 100, Vector: 1, Cookie: 0x77, Channel: ch}, uverbs.UHW{Out: make([]byte, 16)})
	must(err)
	qp, err := d.CreateQP(uverbs.QPConfig{PD: pd, SendCQ: cq, RecvCQ: cq, Type: driver.RC, Cookie: 0x88, SignalAll: true,
		Cap: driver.QPCap{SendWR: 1, RecvWR: 2, SendSGE: 3, RecvSGE: 4, Inline: 5}}, uverbs.UHW{In: []byte("rx"), Out: make([]byte, 32)})
	must(err)
	must(d.ModifyQP(qp.Handle, &driver.QPAttr{State: driver.StateRTR, CurState: driver.StateInit, PathMTU: driver.MTU1024, QKey: 0x11, RQPSN: 0x22, SQPSN: 0x33,
		DestQPN: 0x44, Access: driver.RemoteWrite, PKeyIndex: 0x55, EnSQDNotify: true, MaxRdAtomic: 6, MaxDestRdAtomic: 7, MinRNRTimer: 8, Port: 9, Timeout: 10, RetryCnt: 11, RNRRetry: 12,
		AH: driver.AHAttr{DGID: driver.GID{0xfe, 15: 1}, SGIDIndex: 1, Port: 2, FlowLabel: 0x3, HopLimit: 4, TrafficClass: 5, SL: 6, DLID: 7, SrcPathBits: 8, StaticRate: 9, IsGlobal: true}},
		driver.QPStateMask|driver.QPAV|driver.QPPathMTU))
	_, err = d.QueryQP(qp.Handle, driver.QPStateMask)
	must(err)
	bell, err := d.NewDoorbell(qp.Handle)
	must(err)
	must(bell.Ring())
	bell.Close()
	bell.Close()
	must(d.ReqNotifyCQ(cq, true))
	_, err = d.ResizeCQ(cq, 0x64, uverbs.UHW{Out: make([]byte, 16)})
	must(err)
	srq, err := d.CreateSRQ(uverbs.SRQConfig{PD: pd, WR: 9, SGE: 2, Limit: 3, Cookie: 0x99}, uverbs.UHW{Out: make([]byte, 24)})
	must(err)
	shares, err := d.CreateQP(uverbs.QPConfig{PD: pd, SendCQ: cq, RecvCQ: cq, SRQ: &srq.Handle, Type: driver.UD}, uverbs.UHW{})
	must(err)
	must(d.ResizeSRQ(srq.Handle, 0x1234, uverbs.UHW{Addressed: make([]byte, 16)}))
	must(d.SetSRQLimit(srq.Handle, 0x4321, uverbs.UHW{Addressed: make([]byte, 16)}))
	_, err = d.QuerySRQ(srq.Handle)
	must(err)
	ah, err := d.CreateAH(pd, &driver.AHAttr{DGID: driver.GID{0xfe, 15: 1}, SGIDIndex: 1, Port: 2, FlowLabel: 0x3, HopLimit: 4, TrafficClass: 5,
		SL: 6, DLID: 7, SrcPathBits: 8, StaticRate: 9, IsGlobal: true}, uverbs.UHW{Out: make([]byte, 8)})
	must(err)
	mw, err := d.AllocMW(pd, uverbs.UHW{})
	must(err)
	must(d.AttachMulticast(shares.Handle, driver.GID{0xff, 15: 1}, 0x1111))
	must(d.DetachMulticast(shares.Handle, driver.GID{0xff, 15: 1}, 0x1111))
	must(d.DeallocMW(mw.Handle))
	must(d.DestroyAH(ah))
	must(d.DestroyQP(shares.Handle))
	must(d.DestroySRQ(srq.Handle))
	must(d.DestroyQP(qp.Handle))
	must(d.DestroyCQ(cq))
	must(d.DeregMR(mr.Handle))
	must(d.DeallocPD(pd))

	var got []string
	for _, r := range tr.Records() {
		if r.Command == uapi.CmdModifySRQ {
			clear(r.Attrs[2].Value) // the address at which the driver wants an answer
		}
		got = append(got, r.String())
	}
	want, err := os.ReadFile("testdata/frames.txt")
	must(err)
	if g := strings.Join(got, "\n") + "\n"; g != string(want) {
		t.Errorf("got\n%s\nwant\n%s", g, want)
	}
}

func TestUnfitArguments(t *testing.T) {
	d := open(t, uverbstest.NewFakeKernel(testDev))
	modify := func(a driver.QPAttr, m driver.QPMask) error { return d.ModifyQP(1, &a, m) }
	for name, err := range map[string]error{
		"CQ depth":   second(d.CreateCQ(uverbs.CQConfig{Depth: -1}, uverbs.UHW{})),
		"CQ depth ":  second(d.CreateCQ(uverbs.CQConfig{Depth: 1 << 31}, uverbs.UHW{})),
		"resize CQ":  first(d.ResizeCQ(1, -1, uverbs.UHW{})),
		"SRQ size":   first(d.CreateSRQ(uverbs.SRQConfig{WR: 1 << 31}, uverbs.UHW{})),
		"SRQ sge":    first(d.CreateSRQ(uverbs.SRQConfig{SGE: -1}, uverbs.UHW{})),
		"resize SRQ": d.ResizeSRQ(1, -1, uverbs.UHW{}),
		"SRQ limit":  d.SetSRQLimit(1, 1<<31, uverbs.UHW{}),
		"AH port":    first(d.CreateAH(1, &driver.AHAttr{Port: 256}, uverbs.UHW{})),
		"AH GID":     first(d.CreateAH(1, &driver.AHAttr{Port: 1, SGIDIndex: 256}, uverbs.UHW{})),
		"vector":     second(d.CreateCQ(uverbs.CQConfig{Depth: 1, Vector: 2}, uverbs.UHW{})),
		"QP size":    first(d.CreateQP(uverbs.QPConfig{Cap: driver.QPCap{SendWR: -1}}, uverbs.UHW{})),
		"alt path":   modify(driver.QPAttr{}, driver.QPAltPath),
		"rate limit": modify(driver.QPAttr{}, driver.QPRateLimit),
		"QP cap":     modify(driver.QPAttr{}, driver.QPCapMask),
		"port":       modify(driver.QPAttr{Port: 256}, driver.QPPort),
		"path port":  modify(driver.QPAttr{AH: driver.AHAttr{Port: 0}}, driver.QPAV),
		"GID index":  modify(driver.QPAttr{AH: driver.AHAttr{Port: 1, SGIDIndex: 256}}, driver.QPAV),
	} {
		if !errors.Is(err, syscall.EINVAL) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func first[T any](_ T, err error) error          { return err }
func second[A, B any](_ A, _ B, err error) error { return err }

func TestDoorbellAllocatesNothing(t *testing.T) {
	k := uverbstest.NewFakeKernel(testDev)
	d, err := uverbs.Open(silent{k}, testNode)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	b, err := d.NewDoorbell(3)
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	for name, call := range map[string]func() error{"Ring": b.Ring, "ReqNotifyCQ": func() error { return d.ReqNotifyCQ(1, false) }} {
		if n := testing.AllocsPerRun(100, func() {
			if err := call(); err != nil {
				t.Fatal(err)
			}
		}); n != 0 {
			t.Errorf("%s makes %v allocations", name, n)
		}
	}
}

// silent answers the probe and does nothing else: the decoder allocates.
type silent struct{ *uverbstest.FakeKernel }

func (silent) Ioctl(_ int, frame []byte) error {
	if binary.NativeEndian.Uint16(frame[6:]) == 1 {
		return syscall.ENOSPC
	}
	return nil
}

func TestQueries(t *testing.T) {
	k := uverbstest.NewFakeKernel(testDev)
	d := open(t, k)
	port := make([]byte, 48)
	binary.NativeEndian.PutUint32(port[0:], 0x04010000)
	binary.NativeEndian.PutUint32(port[4:], 1<<31)
	binary.NativeEndian.PutUint32(port[16:], 1024)
	port[20], port[22], port[24], port[29] = 1, 3, 4, 2
	copy(port[26:], []byte{4, 5, 3})
	copy(port[34:], []byte{2, 16, 5, 2})
	k.Methods[uverbstest.QueryPort] = func(c *uverbstest.Call) error {
		if p := c.Data(uapi.AttrQueryPortPortNum); p != 1 {
			t.Errorf("asked for port %d", p)
		}
		c.SetOut(uapi.AttrQueryPortResp, port)
		return nil
	}
	want := driver.PortAttr{State: driver.PortActive, LinkLayer: driver.LinkEthernet, MaxMTU: driver.MTU4096, ActiveMTU: driver.MTU1024, LID: 3, SMLID: 4, LMC: 2,
		GIDTableLen: 1024, PKeyLen: 1, MaxMsgSize: 1 << 31, SpeedMbps: 56000, ActiveWidth: 2, ActiveSpeed: 16, PhysState: 5, CapFlags: 0x04010000}
	if a, err := d.QueryPort(1); err != nil || a != want {
		t.Errorf("got  %+v, %v\nwant %+v", a, err, want)
	}
	for _, tc := range []struct {
		width, speed uint8
		ex           uint32
		mbps         int
	}{{1, 1, 0, 2500}, {2, 32, 0, 100000}, {2, 128, 0, 400000}, {2, 128, 256, 800000}, {4, 64, 0, 400000}, {8, 4, 0, 120000}, {16, 64, 0, 100000}, {3, 64, 0, 0}, {2, 3, 0, 0}} {
		port[34], port[35] = tc.width, tc.speed
		binary.NativeEndian.PutUint32(port[44:], tc.ex)
		if a, err := d.QueryPort(1); err != nil || a.SpeedMbps != tc.mbps {
			t.Errorf("width %d, speed %d/%d: %d Mbit/s, want %d, %v", tc.width, tc.speed, tc.ex, a.SpeedMbps, tc.mbps, err)
		}
	}

	plain := make([]byte, 176)
	for i := range plain {
		plain[i] = byte(i)
	}
	k.Commands[uapi.CmdQueryDevice|uapi.CmdFlagExtended] = fails(syscall.EOPNOTSUPP)
	k.Commands[uapi.CmdQueryDevice] = func(c *uverbstest.Call) error { c.SetOut(uapi.AttrCoreOut, plain); return nil }
	a, err := d.QueryDevice()
	if err != nil || a.NodeGUID != 0x08090a0b0c0d0e0f || a.SysGUID != 0x1011121314151617 || a.MaxQP != 0x37363534 || a.Ports != 0xab || a.CompVectors != 2 {
		t.Errorf("plain QUERY_DEVICE: %+v, %v", a, err)
	}
	if a.MaxSRQSGE != 1<<31-1 {
		t.Errorf("a limit that is negative in C is %#x", a.MaxSRQSGE)
	}
}

func gid(last byte, index, port, typ uint32) []byte {
	b := make([]byte, 32)
	b[0], b[15] = 0xfe, last
	for i, v := range []uint32{index, port, typ, 7} {
		binary.NativeEndian.PutUint32(b[16+4*i:], v)
	}
	return b
}

// What lies behind the length that the kernel tells does not count, whatever is there.
func TestExtendedAttributes(t *testing.T) {
	resp := make([]byte, 304)
	put := func(at int, v uint32) { binary.NativeEndian.PutUint32(resp[at:], v) }
	for at := 184; at < 304; at += 4 {
		put(at, uint32(at)) // a number that says where it is from
	}
	pair := func(at int) uint64 { return binary.NativeEndian.Uint64(resp[at:]) }
	whole := driver.ExtendedAttr{
		ODP:           driver.ODPCaps{General: pair(184), RC: 192, UC: 196, UD: 200, XRC: 296},
		TimestampMask: pair(208), ClockKHz: pair(216),
		RSS:     driver.RSSCaps{QPTypes: 232, MaxTables: 236, MaxTableSize: 240},
		MaxWQRQ: 248, RawPacketCaps: 252,
		TM:              driver.TagMatchingCaps{MaxRendezvousHeader: 256, MaxTags: 260, Flags: 264, MaxOps: 268, MaxSGE: 272},
		ModerationCount: 280, ModerationUsec: 0, MaxDMSize: pair(288),
	}
	none := driver.ExtendedAttr{}
	clock := none
	clock.ODP, clock.TimestampMask, clock.ClockKHz = whole.ODP, whole.TimestampMask, whole.ClockKHz
	clock.ODP.XRC = 0
	for length, want := range map[uint32]driver.ExtendedAttr{304: whole, 400: whole, 184: none, 224: clock} {
		k := uverbstest.NewFakeKernel(testDev)
		d := open(t, k)
		put(180, length)
		k.Commands[uapi.CmdQueryDevice|uapi.CmdFlagExtended] = func(c *uverbstest.Call) error {
			c.SetOut(uapi.AttrCoreOut, resp)
			return nil
		}
		if a, err := d.QueryDevice(); err != nil || a.Ext != want {
			t.Errorf("%d bytes, %v\ngot  %+v\nwant %+v", length, err, a.Ext, want)
		}
	}
}

func TestGIDs(t *testing.T) {
	want := []driver.GIDEntry{
		{GID: driver.GID{0xfe, 15: 1}, Index: 0, IfIndex: 7, Type: driver.GIDTypeRoCEv1},
		{GID: driver.GID{0xfe, 15: 2}, Index: 3, IfIndex: 7, Type: driver.GIDTypeRoCEv2},
	}
	all := [][]byte{gid(2, 3, 1, 2), gid(9, 0, 2, 2), gid(1, 0, 1, 1)}
	table := func(c *uverbstest.Call) error {
		var es []byte
		for _, e := range all {
			es = append(es, e...)
		}
		if int(c.Attr(uapi.AttrQueryGIDTableRespEntries).Len) < len(es) {
			return syscall.EINVAL
		}
		c.SetOut(uapi.AttrQueryGIDTableRespEntries, es)
		c.SetOut(uapi.AttrQueryGIDTableRespNumEntries, binary.NativeEndian.AppendUint64(nil, uint64(len(all))))
		return nil
	}
	entry := func(c *uverbstest.Call) error {
		for _, e := range all {
			if uint64(binary.NativeEndian.Uint32(e[16:])) == c.Data(uapi.AttrQueryGIDEntryGIDIndex) && uint64(binary.NativeEndian.Uint32(e[20:])) == c.Data(uapi.AttrQueryGIDEntryPort) {
				c.SetOut(uapi.AttrQueryGIDEntryRespEntry, e)
				return nil
			}
		}
		return syscall.ENODATA
	}
	for name, tc := range map[string]struct {
		table, entry uverbstest.Handler
		tableLen     int
	}{
		"table":               {table, nil, 4},
		"table of the limit":  {table, nil, 1 << 16},
		"table does not fit":  {fails(syscall.EINVAL), entry, 4},
		"only single entries": {nil, entry, 4},
	} {
		k := uverbstest.NewFakeKernel(testDev)
		d := open(t, k)
		k.Methods[uverbstest.QueryGIDTable], k.Methods[uverbstest.QueryGIDEntry] = tc.table, tc.entry
		if gids, err := d.GIDs(1, tc.tableLen, 2); err != nil || !reflect.DeepEqual(gids, want) {
			t.Errorf("%s: %+v, %v", name, gids, err)
		}
	}
}

// TestAbsurdResponses is a kernel that answers what cannot be.
func TestAbsurdResponses(t *testing.T) {
	u32 := func(v uint32) []byte { return binary.NativeEndian.AppendUint32(nil, v) }
	u64 := func(v uint64) []byte { return binary.NativeEndian.AppendUint64(nil, v) }
	resp := make([]byte, 304)
	port := make([]byte, 48)
	binary.NativeEndian.PutUint32(port[16:], 1<<30)
	qp := make([]byte, 128)
	qp[108] = 99
	for name, tc := range map[string]struct {
		via  uverbstest.Method
		cmd  uint32
		call string
		h    uverbstest.Handler
	}{
		"comp vectors": {uverbstest.GetContext, 0, "GetContext", func(c *uverbstest.Call) error {
			c.SetOut(uapi.AttrGetContextNumCompVectors, u32(1<<31))
			return nil
		}},
		"response length": {uverbstest.InvokeWrite, uapi.CmdQueryDevice | uapi.CmdFlagExtended, "QueryDevice", func(c *uverbstest.Call) error { c.SetOut(uapi.AttrCoreOut, resp); return nil }},
		"GID table":       {uverbstest.QueryPort, 0, "QueryPort", func(c *uverbstest.Call) error { c.SetOut(uapi.AttrQueryPortResp, port); return nil }},
		"number of GIDs": {uverbstest.QueryGIDTable, 0, "GIDs", func(c *uverbstest.Call) error {
			c.SetOut(uapi.AttrQueryGIDTableRespNumEntries, u64(1<<40))
			return nil
		}},
		"GID type": {uverbstest.QueryGIDTable, 0, "GIDs", func(c *uverbstest.Call) error {
			c.SetOut(uapi.AttrQueryGIDTableRespNumEntries, u64(1))
			c.SetOut(uapi.AttrQueryGIDTableRespEntries, gid(1, 0, 1, 1<<20))
			return nil
		}},
		"number of handles": {uverbstest.InfoHandles, 0, "Handles", func(c *uverbstest.Call) error { c.SetOut(uapi.AttrInfoTotalHandles, u32(1<<31)); return nil }},
		"MR handle":         {uverbstest.RegDMABufMR, 0, "RegDMABufMR", func(c *uverbstest.Call) error { c.SetData(uapi.AttrRegDMABufMRHandle, 1<<40); return nil }},
		"CQ handle":         {uverbstest.CQCreate, 0, "CreateCQ", func(c *uverbstest.Call) error { c.SetData(uapi.AttrCreateCQHandle, 1<<40); return nil }},
		"CQ depth":          {uverbstest.CQCreate, 0, "CreateCQ", func(c *uverbstest.Call) error { c.SetOut(uapi.AttrCreateCQRespCQE, u32(1)); return nil }},
		"CQ resized":        {uverbstest.InvokeWrite, uapi.CmdResizeCQ, "ResizeCQ", func(c *uverbstest.Call) error { c.SetOut(uapi.AttrCoreOut, u32(15)); return nil }},
		"CQ huge":           {uverbstest.InvokeWrite, uapi.CmdResizeCQ, "ResizeCQ", func(c *uverbstest.Call) error { c.SetOut(uapi.AttrCoreOut, u32(1<<31)); return nil }},
		"CQ truncated":      {uverbstest.InvokeWrite, uapi.CmdResizeCQ, "ResizeCQ", func(*uverbstest.Call) error { return nil }},
		"SRQ handle":        {uverbstest.SRQCreate, 0, "CreateSRQ", func(c *uverbstest.Call) error { c.SetData(uapi.AttrCreateSRQHandle, 1<<40); return nil }},
		"SRQ truncated":     {uverbstest.SRQCreate, 0, "CreateSRQ", func(*uverbstest.Call) error { return nil }},
		"SRQ without sge":   {uverbstest.SRQCreate, 0, "CreateSRQ", func(c *uverbstest.Call) error { c.SetOut(uapi.AttrCreateSRQRespMaxWR, u32(16)); return nil }},
		"SRQ queried":       {uverbstest.InvokeWrite, uapi.CmdQuerySRQ, "QuerySRQ", func(*uverbstest.Call) error { return nil }},
		"SRQ sge":           {uverbstest.InvokeWrite, uapi.CmdQuerySRQ, "QuerySRQ", func(c *uverbstest.Call) error { c.SetOut(uapi.AttrCoreOut, append(u32(1), u32(1<<31)...)); return nil }},
		"SRQ limit":         {uverbstest.InvokeWrite, uapi.CmdQuerySRQ, "QuerySRQ", func(c *uverbstest.Call) error { c.SetOut(uapi.AttrCoreOut, append(u64(1), u32(1<<31)...)); return nil }},
		"MW truncated":      {uverbstest.InvokeWrite, uapi.CmdAllocMW, "AllocMW", func(c *uverbstest.Call) error { c.SetOut(uapi.AttrCoreOut, u32(1)); return nil }},
		"QP number":         {uverbstest.QPCreate, 0, "CreateQP", func(c *uverbstest.Call) error { c.SetOut(uapi.AttrCreateQPRespQPNum, u32(1<<24)); return nil }},
		"QP sizes":          {uverbstest.QPCreate, 0, "CreateQP", func(c *uverbstest.Call) error { c.SetOut(uapi.AttrCreateQPRespCap, u32(1<<31)); return nil }},
		"QP state":          {uverbstest.InvokeWrite, uapi.CmdQueryQP, "QueryQP", func(c *uverbstest.Call) error { c.SetOut(uapi.AttrCoreOut, qp); return nil }},
		"channel": {uverbstest.InvokeWrite, uapi.CmdCreateCompChannel, "CreateCompChannel", func(c *uverbstest.Call) error {
			c.SetOut(uapi.AttrCoreOut, u32(1<<31))
			return nil
		}},
		"event file": {uverbstest.AsyncEvents, 0, "AllocAsyncEvents", func(c *uverbstest.Call) error { c.SetData(uapi.AttrAsyncEventAllocFDHandle, 1<<63); return nil }},
	} {
		t.Run(name, func(t *testing.T) {
			k := uverbstest.NewFakeKernel(testDev)
			d := open(t, k)
			if k.Methods[tc.via] = tc.h; tc.via == uverbstest.InvokeWrite {
				delete(k.Methods, tc.via)
				k.Commands[tc.cmd] = tc.h
			}
			for _, c := range commands {
				if c.name != tc.call {
					continue
				}
				var re *uverbs.ResponseError
				if err := c.call(d); !errors.As(err, &re) || !errors.Is(err, syscall.EPROTO) {
					t.Errorf("%s: %v", c.name, err)
				}
			}
			if _, objects := k.Left(); objects != 0 {
				t.Errorf("%d objects are left", objects)
			}
		})
	}
}

// FuzzResponses answers every command with the same rubbish: no call may panic,
// nor give a QP number or a count that cannot be.
func FuzzResponses(f *testing.F) {
	f.Add([]byte{}, uint64(0))
	f.Add([]byte(strings.Repeat("\xff", 400)), uint64(1<<63))
	f.Add([]byte("\x01\x00\x00\x00\x00\x00\x00\x00\x02"), uint64(3))
	f.Fuzz(func(t *testing.T, out []byte, data uint64) {
		k := uverbstest.NewFakeKernel(testDev)
		d, err := uverbs.Open(k, testNode)
		if err != nil {
			t.Fatal(err)
		}
		defer d.Close()
		rubbish := func(c *uverbstest.Call) error {
			for _, a := range c.Attrs {
				switch a.Kind {
				case uverbstest.Out:
					c.SetOut(a.ID, out)
				case uverbstest.NewHandle:
					c.SetData(a.ID, data)
				}
			}
			return nil
		}
		for m := range k.Methods {
			if m != uverbstest.AsyncEvents { // which would take over a descriptor of the test
				k.Methods[m] = rubbish
			}
		}
		k.Methods[uverbstest.QueryGIDTable] = rubbish
		for c := range k.Commands {
			if c != uapi.CmdCreateCompChannel {
				k.Commands[c] = rubbish
			}
		}
		for _, c := range commands {
			if c.name != "AllocAsyncEvents" && c.name != "CreateCompChannel" {
				_ = c.call(d)
			}
		}
		if qp, err := d.CreateQP(uverbs.QPConfig{}, uverbs.UHW{}); err == nil && qp.Num >= 1<<24 {
			t.Errorf("QP number %#x", qp.Num)
		}
		if _, depth, err := d.CreateCQ(uverbs.CQConfig{Depth: 8}, uverbs.UHW{}); err == nil && depth < 8 {
			t.Errorf("CQ of %d entries", depth)
		}
		if depth, err := d.ResizeCQ(1, 8, uverbs.UHW{}); err == nil && depth < 8 {
			t.Errorf("CQ resized to %d entries", depth)
		}
		if s, err := d.CreateSRQ(uverbs.SRQConfig{WR: 8, SGE: 2}, uverbs.UHW{}); err == nil && (s.WR < 8 || s.SGE < 2) {
			t.Errorf("SRQ of %d receives of %d entries", s.WR, s.SGE)
		}
		gids, _ := d.GIDs(1, 16, 1)
		for _, g := range gids {
			if g.Index >= 1<<16 {
				t.Errorf("GID index %d", g.Index)
			}
		}
	})
}
