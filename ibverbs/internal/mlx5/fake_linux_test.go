package mlx5

import (
	"encoding/binary"
	"encoding/hex"
	"strings"
	"syscall"
	"testing"
	"testing/fstest"

	"github.com/purerdma/purerdma/ibverbs/driver"
	"github.com/purerdma/purerdma/ibverbs/internal/kernel"
	"github.com/purerdma/purerdma/ibverbs/internal/uapi"
	"github.com/purerdma/purerdma/ibverbs/internal/uverbs"
	"github.com/purerdma/purerdma/ibverbs/internal/uverbs/uverbstest"
	"github.com/purerdma/purerdma/internal/mlx5prm"
	"github.com/purerdma/purerdma/internal/offheap"
)

var order = binary.NativeEndian

// fakeMLX5 is a kernel with an adapter that does nothing: the test writes the
// completions.
type fakeMLX5 struct {
	*uverbstest.FakeKernel
	uars  map[int64][]byte // the mapped pages by offset
	resp  uapi.MLX5AllocUContextResp
	port  uapi.QueryPortResp
	ahs   int               // address handles that it was asked for
	cq    uapi.MLX5CreateCQ // as the last was asked for
	qp    uapi.MLX5CreateQP
	srq   uapi.MLX5CreateSRQ
	limit uint32 // of the SRQ
}

const fakeCQN = 0x77

func newFake() *fakeMLX5 {
	k := &fakeMLX5{FakeKernel: uverbstest.NewFakeKernel(0), uars: map[int64][]byte{}, resp: uapi.MLX5AllocUContextResp{
		BFRegSize: 512, MaxSQDescSz: 1024, MaxRQDescSz: 512, MaxSendWQEBB: 1 << 15, MaxRecvWR: 1 << 15, MaxSRQRecvWR: 1 << 15, CQEVersion: 1,
		CmdsSuppUHW: uapi.MLX5SuppUHWCreateAH}}
	k.port.LinkLayer, k.port.GIDTblLen, k.port.PKeyTblLen, k.port.MaxMTU, k.port.ActiveMTU = uint8(driver.LinkInfiniBand), 16, 4, 5, 4
	k.Methods[uverbstest.QueryPort] = func(c *uverbstest.Call) error {
		resp := uapi.QueryPortRespEx{LegacyResp: k.port}
		c.SetOut(uapi.AttrQueryPortResp, bytesOf(&resp))
		return nil
	}
	context, cq, qp := k.Methods[uverbstest.GetContext], k.Methods[uverbstest.CQCreate], k.Methods[uverbstest.QPCreate]
	srq := k.Methods[uverbstest.SRQCreate]
	k.Methods[uverbstest.SRQCreate] = func(c *uverbstest.Call) error {
		copy(bytesOf(&k.srq), c.In(uapi.AttrUHWIn))
		c.SetOut(uapi.AttrUHWOut, []byte{0x55, 0, 0, 0, 0, 0, 0, 0})
		return srq(c)
	}
	k.Commands[uapi.CmdModifySRQ] = func(c *uverbstest.Call) error {
		var m uapi.ModifySRQ
		copy(bytesOf(&m), c.In(uapi.AttrCoreIn))
		if m.AttrMask != uapi.SRQLimit {
			return syscall.EINVAL
		}
		k.limit = m.SRQLimit
		return nil
	}
	k.Methods[uverbstest.GetContext] = func(c *uverbstest.Call) error {
		c.SetOut(uapi.AttrUHWOut, bytesOf(&k.resp))
		return context(c)
	}
	k.Methods[uverbstest.CQCreate] = func(c *uverbstest.Call) error {
		copy(bytesOf(&k.cq), c.In(uapi.AttrUHWIn))
		c.SetOut(uapi.AttrUHWOut, []byte{fakeCQN, 0, 0, 0, 0, 0, 0, 0})
		return cq(c)
	}
	k.Methods[uverbstest.QPCreate] = func(c *uverbstest.Call) error {
		copy(bytesOf(&k.qp), c.In(uapi.AttrUHWIn))
		return qp(c)
	}
	k.Commands[uapi.CmdQueryDevice|uapi.CmdFlagExtended] = func(c *uverbstest.Call) error {
		resp := uapi.ExQueryDeviceResp{ResponseLength: uint32(len(bytesOf(&uapi.ExQueryDeviceResp{})))}
		resp.Base.MaxQPWR, resp.Base.MaxSGE, resp.Base.MaxCQE, resp.Base.AtomicCap, resp.Base.PhysPortCnt = 1<<15, 30, 1<<22, 1, 1
		resp.Base.MaxMcastGrp, resp.Base.MaxAH, resp.Base.MaxSRQ, resp.Base.MaxSRQSGE, resp.Base.MaxMW = 8, 8, 8, 31, 8
		resp.Base.DeviceCapFlags, resp.Base.MaxQPRdAtom, resp.Base.MaxQPInitRdAtom = uapi.DeviceMemWindowType2B, 16, 16
		c.SetOut(uapi.AttrCoreOut, bytesOf(&resp))
		return nil
	}
	k.Commands[uapi.CmdAllocPD] = withUHW(k.Commands[uapi.CmdAllocPD])
	k.Ring = func(off int64, size int) (offheap.Span, error) {
		mem, err := offheap.Map(size, offheap.Options{})
		k.uars[off] = mem.Bytes()
		return mem, err
	}
	return k
}

func withUHW(h uverbstest.Handler) uverbstest.Handler {
	return func(c *uverbstest.Call) error {
		c.SetOut(uapi.AttrUHWOut, []byte{9, 0, 0, 0})
		return h(c)
	}
}

var node = kernel.Node{Node: uverbs.Node{DriverID: uapi.DriverMLX5}, Info: driver.DeviceInfo{Ports: 1}}

func (k *fakeMLX5) world() *kernel.World {
	return &kernel.World{Kernel: k, Sys: fstest.MapFS{}, InterfaceName: func(int) string { return "" }}
}

// open makes a context, and checks at the end that nothing of it is left.
func (k *fakeMLX5) open(t testing.TB, cqe int) *Context {
	t.Helper()
	c, err := Provider{Allowed: true, CQESize: cqe}.Open(k.world(), node)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
		if files, objects := k.Left(); files != 0 || objects != 0 {
			t.Errorf("left: %d files, %d objects", files, objects)
		}
	})
	return c.(*Context)
}

// rig is a queue pair in RTS that the test plays the adapter of.
type rig struct {
	t  testing.TB
	k  *fakeMLX5
	c  *Context
	pd driver.PD
	cq *CQ
	qp *QP
	pi uint32 // completions written
}

func newRig(t testing.TB, k *fakeMLX5, cqe int, config driver.QPConfig) *rig {
	t.Helper()
	return newRigWith(t, k, cqe, config, nil)
}

// newRigWith is newRig with an SRQ.
func newRigWith(t testing.TB, k *fakeMLX5, cqe int, config driver.QPConfig, shared func(driver.PD) driver.SRQ) *rig {
	t.Helper()
	c := k.open(t, cqe)
	check := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	pd, err := c.AllocPD()
	check(err)
	cq, err := c.CreateCQ(driver.CQConfig{Depth: 7, Cookie: 5})
	check(err)
	config.SendCQ, config.RecvCQ = cq, cq
	objects := []interface{ Close() error }{cq, pd}
	if shared != nil {
		config.SRQ = shared(pd)
		objects = append([]interface{ Close() error }{config.SRQ}, objects...)
	}
	if config.Type == 0 {
		config.Type = driver.RC
	}
	qp, err := pd.CreateQP(config)
	check(err)
	for s := driver.StateInit; s <= driver.StateRTS; s++ {
		check(qp.Modify(&driver.QPAttr{State: s}, driver.QPStateMask))
	}
	t.Cleanup(func() {
		for _, o := range append([]interface{ Close() error }{qp}, objects...) {
			if err := o.Close(); err != nil {
				t.Error(err)
			}
		}
	})
	return &rig{t: t, k: k, c: c, pd: pd, cq: cq.(*CQ), qp: qp.(*QP)}
}

var small = driver.QPCap{SendWR: 4, RecvWR: 4, SendSGE: 2, RecvSGE: 2, Inline: 64}

// complete writes a completion as the adapter does.
func (r *rig) complete(opcode uint8, counter uint32, set func(e *mlx5prm.CQE)) {
	e := r.cq.cqe(r.cq.where(r.pi))
	*e = mlx5prm.CQE{}
	e.SRQNUIdx.Set(r.qp.key)
	e.SOpDropQPN.Set(r.qp.num)
	e.WQECounter.Set(uint16(counter))
	if set != nil {
		set(e)
	}
	e.OpOwn = opcode << 4
	if r.pi&r.cq.n != 0 {
		e.OpOwn |= mlx5prm.OwnerMask
	}
	r.pi++
}

func (r *rig) poll(n int) []driver.WC {
	r.t.Helper()
	wcs := make([]driver.WC, n)
	got, err := r.cq.Poll(wcs)
	if err != nil {
		r.t.Fatal(err)
	}
	return wcs[:got]
}

func (r *rig) post(wrs ...driver.SendWR) {
	r.t.Helper()
	if n, err := r.qp.PostSend(wrs); n != len(wrs) || err != nil {
		r.t.Fatalf("posted %d of %d, %v", n, len(wrs), err)
	}
}

// records is the two words of the QP's doorbell record.
func (r *rig) records() (recv, send uint32) {
	b := r.qp.mem.Bytes()[r.k.qp.DBAddr-r.k.qp.BufAddr:]
	return binary.BigEndian.Uint32(b), binary.BigEndian.Uint32(b[4:])
}

// same compares memory with bytes in hexadecimal, blanks aside.
func same(t *testing.T, what string, got []byte, want string) {
	t.Helper()
	want = strings.Join(strings.Fields(want), "")
	if h := hex.EncodeToString(got[:len(want)/2]); h != want {
		t.Errorf("%s is\n%s, want\n%s", what, h, want)
	}
}
