package rxe

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"syscall"
	"testing"
	"testing/fstest"

	"github.com/purerdma/purerdma/ibverbs/driver"
	"github.com/purerdma/purerdma/ibverbs/internal/kernel"
	"github.com/purerdma/purerdma/ibverbs/internal/uapi"
	"github.com/purerdma/purerdma/ibverbs/internal/uverbs"
	"github.com/purerdma/purerdma/ibverbs/internal/uverbs/uverbstest"
	"github.com/purerdma/purerdma/internal/offheap"
)

// fakeRXE is a kernel with one Soft-RoCE device. Rings have 16 slots. Its
// journal says what was destroyed and unmapped, in order, and what QPs were
// moved to.
type fakeRXE struct {
	*uverbstest.FakeKernel
	t       *testing.T
	journal []string
	mapped  int
	joinErr error
	mapErr  int // fail the n-th mapping from now on, from 1
	shape   func(head *uapi.RxeQueueBuf)
}

const (
	fakeSlots = 16
	fakeAHNum = 33
	fakeCaps  = uapi.DeviceSRQResize | uapi.DeviceMemWindow | uapi.DeviceMemWindowType2B
)

// Tokens of the fake's mappings.
const tokenCQ, tokenRQ, tokenSQ, tokenSRQ = 0x1000, 0x2000, 0x3000, 0x4000

func newFakeRXE(t *testing.T) *fakeRXE {
	k := &fakeRXE{FakeKernel: uverbstest.NewFakeKernel(0), t: t}
	info := func(token uint64) []byte {
		return binary.NativeEndian.AppendUint64(binary.NativeEndian.AppendUint64(nil, token), uint64(headSize+fakeSlots*256))
	}
	cq, qp, srq := k.Methods[uverbstest.CQCreate], k.Methods[uverbstest.QPCreate], k.Methods[uverbstest.SRQCreate]
	k.Methods[uverbstest.CQCreate] = func(c *uverbstest.Call) error {
		c.SetOut(uapi.AttrUHWOut, info(tokenCQ))
		return cq(c)
	}
	k.Methods[uverbstest.QPCreate] = func(c *uverbstest.Call) error {
		c.SetOut(uapi.AttrUHWOut, append(info(tokenRQ), info(tokenSQ)...))
		return qp(c)
	}
	k.Methods[uverbstest.SRQCreate] = func(c *uverbstest.Call) error {
		c.SetOut(uapi.AttrUHWOut, append(info(tokenSRQ), 1, 0, 2, 0))
		return srq(c)
	}
	resizeCQ, createAH := k.Commands[uapi.CmdResizeCQ], k.Commands[uapi.CmdCreateAH]
	k.Commands[uapi.CmdResizeCQ] = func(c *uverbstest.Call) error {
		c.SetOut(uapi.AttrUHWOut, info(tokenCQ))
		return resizeCQ(c)
	}
	k.Commands[uapi.CmdModifySRQ] = func(c *uverbstest.Call) error {
		if order.Uint32(c.In(uapi.AttrCoreIn)[4:]) == uapi.SRQMaxWR {
			c.SetAddressed(uapi.AttrUHWIn, info(tokenSRQ))
		}
		return nil
	}
	k.Commands[uapi.CmdCreateAH] = func(c *uverbstest.Call) error {
		c.SetOut(uapi.AttrUHWOut, []byte{fakeAHNum, 0, 0, 0})
		return createAH(c)
	}
	k.Methods[uverbstest.QueryGIDTable] = func(c *uverbstest.Call) error {
		gids := make([]byte, 2*32)
		copy(gids, []byte{0: 0xfe, 1: 0x80, 15: 1})
		copy(gids[32:], []byte{10: 0xff, 11: 0xff, 12: 10, 15: 1})
		for i := range uint32(2) {
			for at, v := range map[int]uint32{16: i, 20: 1, 24: 2, 28: 7} {
				order.PutUint32(gids[32*i+uint32(at):], v)
			}
		}
		c.SetOut(uapi.AttrQueryGIDTableRespEntries, gids)
		c.SetOut(uapi.AttrQueryGIDTableRespNumEntries, []byte{2, 0, 0, 0, 0, 0, 0, 0})
		return nil
	}
	for name, m := range map[string]uverbstest.Method{"destroy CQ": uverbstest.CQDestroy, "destroy QP": uverbstest.QPDestroy,
		"destroy SRQ": uverbstest.SRQDestroy, "destroy AH": uverbstest.AHDestroy, "free MW": uverbstest.MWDestroy} {
		h := k.Methods[m]
		k.Methods[m] = func(c *uverbstest.Call) error { k.note(name); return h(c) }
	}
	k.Methods[uverbstest.QueryPort] = func(c *uverbstest.Call) error {
		resp := make([]byte, 48)
		resp[16], resp[27], resp[28] = 16, byte(driver.MTU4096), byte(driver.MTU1024)
		c.SetOut(uapi.AttrQueryPortResp, resp)
		return nil
	}
	k.Commands[uapi.CmdModifyQP] = func(c *uverbstest.Call) error {
		k.note("modify to " + driver.QPState(c.In(uapi.AttrCoreIn)[96]).String())
		return nil
	}
	k.Commands[uapi.CmdQueryDevice|uapi.CmdFlagExtended] = func(c *uverbstest.Call) error {
		resp := make([]byte, 304)
		for at, v := range map[int]uint32{180: 304, 56: 1000, 60: fakeCaps, 64: 32, 76: 32767, 88: 128, 100: 128, 120: 9, 132: 10, 144: 11, 156: 12, 160: 500, 164: 27} {
			binary.NativeEndian.PutUint32(resp[at:], v)
		}
		resp[171] = 1 // port
		c.SetOut(uapi.AttrCoreOut, resp)
		return nil
	}
	k.Ring = k.ring
	return k
}

func (k *fakeRXE) note(s string) { k.journal = append(k.journal, s) }

func (k *fakeRXE) ring(off int64, size int) (offheap.Span, error) {
	if k.mapErr--; k.mapErr == 0 {
		return offheap.Span{}, syscall.EAGAIN
	}
	mem := fakeMemory(k.t, fakeSlots, 256)
	if head := (*uapi.RxeQueueBuf)(mem.Pointer()); k.shape != nil {
		k.shape(head)
	}
	k.mapped++
	name := map[int64]string{tokenCQ: "CQ", tokenRQ: "RQ", tokenSQ: "SQ", tokenSRQ: "SRQ"}[off]
	return offheap.Adopt(mem.Pointer(), size, func() error {
		k.mapped--
		k.note("unmap " + name)
		return mem.Release()
	})
}

// join is JoinGroup.
func (k *fakeRXE) join(group netip.Addr, netDevs []int) (func() error, error) {
	k.note(fmt.Sprintf("join %v on %v", group, netDevs))
	return func() error { k.note(fmt.Sprintf("leave %v", group)); return nil }, k.joinErr
}

// open makes a context, and checks at the end that nothing of it is left.
func (k *fakeRXE) open(proc fstest.MapFS) *Context {
	k.t.Helper()
	c, err := Provider{Proc: proc, JoinGroup: k.join}.Open(
		&kernel.World{Kernel: k, Sys: fstest.MapFS{}, InterfaceName: func(int) string { return "v0" }},
		kernel.Node{Node: uverbs.Node{DriverID: uapi.DriverRXE}, Info: driver.DeviceInfo{Ports: 1}})
	if err != nil {
		k.t.Fatal(err)
	}
	k.t.Cleanup(func() {
		if err := c.Close(); err != nil {
			k.t.Error(err)
		}
		if files, objects := k.Left(); files != 0 || objects != 0 || k.mapped != 0 {
			k.t.Errorf("left: %d files, %d objects, %d rings", files, objects, k.mapped)
		}
	})
	return c.(*Context)
}

// objects makes one of each, closed at the end by the test.
func objects(t *testing.T, c *Context) (*PD, *CQ, *QP) {
	t.Helper()
	pd, err := c.AllocPD()
	if err != nil {
		t.Fatal(err)
	}
	cq, err := c.CreateCQ(driver.CQConfig{Depth: 8, Cookie: 7})
	if err != nil {
		t.Fatal(err)
	}
	qp, err := pd.CreateQP(qpConfig(cq))
	if err != nil {
		t.Fatal(err)
	}
	return pd.(*PD), cq.(*CQ), qp.(*QP)
}
