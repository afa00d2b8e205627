package mlx5

import (
	"errors"
	"syscall"
	"testing"

	"github.com/purerdma/purerdma/ibverbs/driver"
	"github.com/purerdma/purerdma/ibverbs/internal/uapi"
	"github.com/purerdma/purerdma/ibverbs/internal/uverbs/uverbstest"
	"github.com/purerdma/purerdma/internal/mlx5prm"
)

// ethernet makes port 1 one of Ethernet whose GID 3 is of kind.
func (k *fakeMLX5) ethernet(kind uint32) {
	k.port.LinkLayer = uint8(driver.LinkEthernet)
	k.Methods[uverbstest.QueryGIDTable] = func(c *uverbstest.Call) error {
		e := uapi.GIDEntry{PortNum: 1, GIDIndex: 3, GIDType: kind}
		c.SetOut(uapi.AttrQueryGIDTableRespEntries, bytesOf(&e))
		c.SetOut(uapi.AttrQueryGIDTableRespNumEntries, []byte{1, 0, 0, 0, 0, 0, 0, 0})
		return nil
	}
	create := k.Commands[uapi.CmdCreateAH]
	k.Commands[uapi.CmdCreateAH] = func(c *uverbstest.Call) error {
		k.ahs++
		resp := uapi.MLX5CreateAHResp{ResponseLength: 10, DMAC: [6]uint8{2, 4, 6, 8, 10, 12}}
		c.SetOut(uapi.AttrUHWOut, bytesOf(&resp))
		return create(c)
	}
}

var farAway = driver.AHAttr{DGID: driver.GID{0xfe, 0x80, 15: 9}, SGIDIndex: 3, Port: 1, FlowLabel: 0x12345, HopLimit: 0x40, TrafficClass: 0x11,
	SL: 5, DLID: 0x4321, SrcPathBits: 6, StaticRate: 3, IsGlobal: true}

func TestAddressVectors(t *testing.T) {
	const gid = "fe800000000000000000000000000009"
	for _, c := range []struct {
		name   string
		link   driver.LinkLayer
		kind   uint32
		change func(*driver.AHAttr)
		want   string // behind the number of the QP
	}{
		{"InfiniBand", driver.LinkInfiniBand, 0, nil, "85064321 00000000 000000000000 1140 40312345" + gid},
		{"InfiniBand without GRH", driver.LinkInfiniBand, 0, func(a *driver.AHAttr) { a.IsGlobal = false },
			"85064321 00000000 000000000000 0000 00000000 00000000000000000000000000000000"},
		{"RoCE v1", driver.LinkEthernet, uint32(driver.GIDTypeRoCEv1), nil, "8a000000 00000000 020406080a0c 1140 00312345" + gid},
		// The port is 0xc000 with the low 14 bits of the label and its 6 high ones, by exclusive or.
		{"RoCE v2", driver.LinkEthernet, uint32(driver.GIDTypeRoCEv2), nil, "8a00e341 00000000 020406080a0c 1140 00312345" + gid},
		{"a rate that the device does not have", driver.LinkInfiniBand, 0, func(a *driver.AHAttr) { a.IsGlobal, a.StaticRate = false, 17 },
			"05064321 00000000 000000000000 0000 00000000 00000000000000000000000000000000"},
	} {
		t.Run(c.name, func(t *testing.T) {
			k := newFake()
			if c.link == driver.LinkEthernet {
				k.ethernet(c.kind)
			}
			r := newRig(t, k, 64, driver.QPConfig{Type: driver.UD, Cap: small})
			attr := farAway
			if c.change != nil {
				c.change(&attr)
			}
			r.post(driver.SendWR{Op: driver.OpSend, UD: r.to(attr), SGL: []driver.SGE{{Addr: 0x1122334455667788, Length: 0x100, LKey: 0xabcd}}})
			b := r.qp.sq.bytes(0, 1<<20)
			same(t, "the head", b, "0000000a")
			same(t, "the rest", b[7:], "05 00000000 00000000"+"11223344 00000000 800abcde"+c.want+"00000100 0000abcd 1122334455667788")
			if asked := c.link == driver.LinkEthernet; (k.ahs == 1) != asked || k.ahs > 1 {
				t.Errorf("the kernel was asked for %d address handles", k.ahs)
			}
		})
	}
}

// to is an address handle that is closed with the test.
func (r *rig) to(a driver.AHAttr) driver.Destination {
	r.t.Helper()
	ah, err := r.pd.CreateAH(a)
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() {
		if err := ah.Close(); err != nil {
			r.t.Error(err)
		}
	})
	return driver.Destination{AH: ah, QPN: 0xabcde, QKey: 0x11223344}
}

// TestDatagramsAcrossTheEnd has entries that begin in the last block of the ring: the
// address is there, the data at the start.
func TestDatagramsAcrossTheEnd(t *testing.T) {
	r := newRig(t, newFake(), 64, driver.QPConfig{Type: driver.UD, Cap: driver.QPCap{SendWR: 2, SendSGE: 1}})
	blocks := uint32(len(r.qp.sq.requests))
	to := r.to(farAway)
	for i := range 5 * blocks {
		wr := driver.SendWR{ID: uint64(i), Op: driver.OpSendWithImm, Imm: i, Flags: driver.Signaled, UD: to}
		if i%3 != 0 {
			wr.SGL = []driver.SGE{{Addr: uint64(i), Length: 1 + i, LKey: 2}}
		}
		start := r.qp.sq.cur
		r.post(wr)
		c := r.qp.sq.ctrl(start * mlx5prm.SendBB)
		if c.Imm.Get() != i || c.DS() != 4+len(wr.SGL) || r.qp.sq.cur != start+1+uint32(len(wr.SGL)) {
			t.Fatalf("entry %d: %+v", i, c)
		}
		if d := r.qp.sq.data((start + 1) * mlx5prm.SendBB); len(wr.SGL) > 0 && d.ByteCount.Get() != 1+i {
			t.Fatalf("entry %d: %+v", i, d)
		}
		r.complete(mlx5prm.CQEReq, start, nil)
		if wcs := r.poll(1); len(wcs) != 1 || wcs[0].ID != uint64(i) {
			t.Fatalf("entry %d: %+v", i, wcs)
		}
	}
}

func TestInlineDatagram(t *testing.T) {
	r := newRig(t, newFake(), 64, driver.QPConfig{Type: driver.UD, Cap: small})
	r.post(driver.SendWR{Op: driver.OpSendWithImm, Imm: 0xdeadbeef, Inline: []byte("hello"), UD: r.to(farAway)})
	b := r.qp.sq.bytes(0, 1<<20)
	same(t, "the head", b[7:], "05 00000000 deadbeef")
	same(t, "the data", b[64:], "80000005 68656c6c6f")
}

func TestReceivedDatagrams(t *testing.T) {
	for _, c := range []struct {
		name   string
		opcode uint8
		flags  uint32
		want   driver.WC
	}{
		{"with a GRH", mlx5prm.CQERespSend, 2<<28 | 5<<24 | 0xbadbad,
			driver.WC{Op: driver.WCRecv, ByteLen: 77, SrcQP: 0xbadbad, SL: 5, SLID: 0x77, PathBits: 9, PKeyIndex: 3, Flags: driver.WCGRH}},
		{"without", mlx5prm.CQERespSend, 1, driver.WC{Op: driver.WCRecv, ByteLen: 77, SrcQP: 1, SLID: 0x77, PathBits: 9, PKeyIndex: 3}},
		{"with immediate data", mlx5prm.CQERespSendImm, 1<<28 | 2,
			driver.WC{Op: driver.WCRecv, ByteLen: 77, SrcQP: 2, SLID: 0x77, PathBits: 9, Imm: 3, Flags: driver.WCGRH | driver.WCWithImm}},
	} {
		r := newRig(t, newFake(), 64, driver.QPConfig{Type: driver.UD, Cap: small})
		if n, err := r.qp.PostRecv([]driver.RecvWR{{ID: 8}}); n != 1 || err != nil {
			t.Fatal(n, err)
		}
		r.complete(c.opcode, 0, func(e *mlx5prm.CQE) {
			e.FlagsRQPN.Set(c.flags)
			e.SLID.Set(0x77)
			e.MLPath = 0x80 | 9
			e.ByteCnt.Set(77)
			e.ImmInvalPKey.Set(3)
		})
		c.want.ID, c.want.QPN = 8, r.qp.num
		if wcs := r.poll(2); len(wcs) != 1 || wcs[0] != c.want {
			t.Errorf("%s: %+v, want %+v", c.name, wcs, c.want)
		}
	}
}

// TestDatagramThatFails stops the send queue and nothing else.
func TestDatagramThatFails(t *testing.T) {
	r := newRig(t, newFake(), 64, driver.QPConfig{Type: driver.UD, Cap: small})
	r.post(driver.SendWR{Op: driver.OpSend, UD: r.to(farAway)})
	r.complete(mlx5prm.CQEReqErr, 0, nil)
	r.cq.errCQE(r.cq.where(0)).Syndrome = mlx5prm.SyndromeLocalProtErr
	if wcs := r.poll(1); len(wcs) != 1 || wcs[0].Status != driver.LocProtErr {
		t.Errorf("%+v", wcs)
	}
	if s := driver.QPState(r.qp.state.Load()); s != driver.StateSQE {
		t.Errorf("state %v", s)
	}
}

func TestRefusedAddresses(t *testing.T) {
	k := newFake()
	k.ethernet(uint32(driver.GIDTypeRoCEv2))
	r := newRig(t, k, 64, driver.QPConfig{Type: driver.UD, Cap: small})
	for name, change := range map[string]func(*driver.AHAttr){
		"port 0":         func(a *driver.AHAttr) { a.Port = 0 },
		"port 2":         func(a *driver.AHAttr) { a.Port = 2 },
		"no GID":         func(a *driver.AHAttr) { a.IsGlobal = false },
		"flow label":     func(a *driver.AHAttr) { a.FlowLabel = 1 << 20 },
		"GID index":      func(a *driver.AHAttr) { a.SGIDIndex = 16 },
		"negative index": func(a *driver.AHAttr) { a.SGIDIndex = -1 },
		"empty GID":      func(a *driver.AHAttr) { a.SGIDIndex = 4 },
		"service level":  func(a *driver.AHAttr) { a.SL = 8 },
		"static rate":    func(a *driver.AHAttr) { a.StaticRate = 25 },
		"path bits":      func(a *driver.AHAttr) { a.SrcPathBits = 128 },
	} {
		attr := farAway
		change(&attr)
		if _, err := r.pd.CreateAH(attr); !errors.Is(err, syscall.EINVAL) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if k.ahs != 0 {
		t.Errorf("the kernel was asked for %d address handles", k.ahs)
	}
	k.Commands[uapi.CmdCreateAH] = func(*uverbstest.Call) error { return syscall.ETIMEDOUT }
	if _, err := r.pd.CreateAH(farAway); !errors.Is(err, syscall.ETIMEDOUT) {
		t.Error(err)
	}
}

func TestRefusedDatagrams(t *testing.T) {
	r := newRig(t, newFake(), 64, driver.QPConfig{Type: driver.UD, Cap: small})
	to := r.to(farAway)
	pd, err := r.c.AllocPD()
	if err != nil {
		t.Fatal(err)
	}
	other, err1 := pd.CreateAH(farAway)
	closed, err2 := r.pd.CreateAH(farAway)
	if err := errors.Join(err1, err2); err != nil {
		t.Fatal(err)
	}
	if err := closed.Close(); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		wr   driver.SendWR
		want error
	}{
		"no address":      {driver.SendWR{Op: driver.OpSend}, errNoAH},
		"of another PD":   {driver.SendWR{Op: driver.OpSend, UD: driver.Destination{AH: other}}, errOtherAH},
		"closed":          {driver.SendWR{Op: driver.OpSend, UD: driver.Destination{AH: closed}}, errClosedAH},
		"write":           {driver.SendWR{Op: driver.OpWrite, UD: to}, driver.ErrBadOpcode},
		"with invalidate": {driver.SendWR{Op: driver.OpSendWithInv, UD: to}, driver.ErrBadOpcode},
	} {
		if n, err := r.qp.PostSend([]driver.SendWR{c.wr}); n != 0 || err != c.want {
			t.Errorf("%s: %d, %v; want %v", name, n, err, c.want)
		}
	}
	if err := errors.Join(other.Close(), pd.Close()); err != nil {
		t.Error(err)
	}
}

func TestMulticast(t *testing.T) {
	k := newFake()
	var told []uapi.AttachMcast
	for _, cmd := range []uint32{uapi.CmdAttachMcast, uapi.CmdDetachMcast} {
		k.Commands[cmd] = func(c *uverbstest.Call) error {
			var m uapi.AttachMcast
			copy(bytesOf(&m), c.In(uapi.AttrCoreIn))
			told = append(told, m)
			return nil
		}
	}
	r := newRig(t, k, 64, driver.QPConfig{Type: driver.UD, Cap: small})
	group := driver.GID{0xff, 0x12, 15: 1}
	if err := errors.Join(r.qp.Multicast(group, 0xc001, true), r.qp.Multicast(group, 0xc001, false)); err != nil {
		t.Fatal(err)
	}
	if len(told) != 2 || told[0] != told[1] || told[0].MLID != 0xc001 || driver.GID(told[0].GID) != group {
		t.Errorf("%+v", told)
	}
	if err := r.qp.Multicast(driver.GID{0xfe}, 0, true); !errors.Is(err, syscall.EINVAL) {
		t.Error(err)
	}
	rc := newRig(t, newFake(), 64, driver.QPConfig{Cap: small})
	if err := rc.qp.Multicast(group, 0, true); !errors.Is(err, syscall.EINVAL) {
		t.Error(err)
	}
}

func TestProbes(t *testing.T) {
	k := newFake()
	k.resp.CmdsSuppUHW = 0
	old := k.open(t, 64)
	fresh := newFake().open(t, 64)
	for f, c := range map[driver.Feature]*Context{driver.FeatureUD: fresh, driver.FeatureAH: fresh, driver.FeatureUC: fresh, driver.FeatureMulticast: fresh} {
		if err := c.Probe(f); err != nil {
			t.Error(err)
		}
	}
	var not *driver.NotSupportedError
	if err := old.Probe(driver.FeatureAH); !errors.As(err, &not) || not.By != driver.LacksKernel {
		t.Error(err)
	}
}

func TestDatagramsAndInlineDataAllocateNothing(t *testing.T) {
	r := newRig(t, newFake(), 64, driver.QPConfig{Type: driver.UD, Cap: small})
	to, data := r.to(farAway), []byte("hello")
	var wcs [2]driver.WC
	if n := testing.AllocsPerRun(100, func() {
		block := r.qp.sq.cur
		wr := [1]driver.SendWR{{Op: driver.OpSend, Flags: driver.Signaled, Inline: data, UD: to}}
		_, err1 := r.qp.PostSend(wr[:])
		_, err2 := r.qp.PostRecv([]driver.RecvWR{{}})
		r.complete(mlx5prm.CQEReq, block, nil)
		r.complete(mlx5prm.CQERespSend, r.qp.rq.head-1, nil)
		if got, err := r.cq.Poll(wcs[:]); got != 2 || errors.Join(err, err1, err2) != nil {
			t.Fatal(got, err, err1, err2)
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
