package mlx5model

import (
	"encoding/binary"
	"testing"

	"github.com/purerdma/purerdma/ibverbs/driver"
	"github.com/purerdma/purerdma/ibverbs/internal/uapi"
	"github.com/purerdma/purerdma/internal/mlx5prm"
	"github.com/purerdma/purerdma/internal/offheap"
	"golang.org/x/sys/unix"
)

// raw is an open file of a model of which each ioctl is made attribute by attribute, for
// what neither our driver nor libmlx5 would ask.
type raw struct {
	t     *testing.T
	m     *Model
	local *Local
	fd    int
	frame offheap.Span
	mem   offheap.Span // for what objects are made in
}

const rawFrame, rawMem = 4096, 1 << 16

// newRaw opens a file that has no context.
func newRaw(t *testing.T, c Config) *raw {
	t.Helper()
	r := &raw{t: t, m: New(c)}
	r.local = NewLocal(r.m)
	var err error
	if r.fd, _, err = r.local.Open(""); err != nil {
		t.Fatal(err)
	}
	r.frame, r.mem = mapped(t, rawFrame), mapped(t, rawMem)
	t.Cleanup(func() {
		if err := r.local.Close(r.fd); err != nil {
			t.Error(err)
		}
	})
	return r
}

func mapped(t *testing.T, n int) offheap.Span {
	t.Helper()
	s, err := offheap.Map(n, offheap.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Release() })
	return s
}

// opened is a raw file with a context.
func opened(t *testing.T, c Config) *raw {
	t.Helper()
	r := newRaw(t, c)
	req := uapi.MLX5AllocUContextReqV2{MaxCQEVersion: 1, LibCaps: uapi.MLX5LibCapDynUAR}
	r.must(r.getContext(&req, nil))
	return r
}

func (r *raw) must(err error) {
	r.t.Helper()
	if err != nil {
		r.t.Fatal(err)
	}
}

// arg is an attribute: bytes in, or bytes that are filled in, or a number.
type arg struct {
	id     uint16
	in     []byte
	out    []byte
	number *uint64 // a handle or a descriptor; a new one is stored there
	wide   bool    // a number is a constant
}

func input(id uint16, b []byte) arg          { return arg{id: id, in: b} }
func output(id uint16, b []byte) arg         { return arg{id: id, out: b} }
func handleOf(id uint16, handle uint64) arg  { return arg{id: id, number: &handle} }
func fresh(id uint16, handle *uint64) arg    { return arg{id: id, number: handle} }
func constantOf(id uint16, value uint64) arg { return arg{id: id, number: &value, wide: true} }

// ioctl is one method. What it wrote is in the arguments only if it succeeded.
func (r *raw) ioctl(object, method uint16, args ...arg) error {
	r.t.Helper()
	b := r.frame.Bytes()
	clear(b)
	at := hdrSize + attrSize*len(args)
	h := uapi.IoctlHdr{Length: uint16(at), ObjectID: object, MethodID: method, NumAttrs: uint16(len(args)), DriverID: uapi.DriverMLX5}
	copy(b, bytesOf(&h))
	place := make([]int, len(args))
	for i, g := range args {
		a := uapi.Attr{AttrID: g.id, Flags: uapi.AttrFMandatory}
		switch {
		case g.number != nil:
			a.Data = *g.number
			if g.wide {
				a.Len = 8
			}
		case g.out != nil:
			a.Len, a.Data = uint16(len(g.out)), r.frame.Addr()+uint64(at)
		case len(g.in) <= uapi.InlineMax:
			a.Len, a.Data = uint16(len(g.in)), binary.NativeEndian.Uint64(append(g.in[:len(g.in):len(g.in)], make([]byte, 8)...))
		default:
			a.Len, a.Data = uint16(len(g.in)), r.frame.Addr()+uint64(at)
			copy(b[at:], g.in)
		}
		place[i] = at
		at += (len(g.in) + len(g.out) + 7) &^ 7
		copy(b[hdrSize+attrSize*i:], bytesOf(&a))
	}
	if err := r.local.Ioctl(r.fd, b); err != nil {
		return err
	}
	for i, g := range args {
		copy(g.out, b[place[i]:])
		if g.number != nil && !g.wide {
			*g.number = structOf[uapi.Attr](b[hdrSize+attrSize*i:]).Data
		}
	}
	return nil
}

// write is a command of the old interface.
func (r *raw) write(cmd uint32, request, response []byte, own ...arg) error {
	r.t.Helper()
	args := append(own, constantOf(uapi.AttrWriteCmd, uint64(cmd)), input(uapi.AttrCoreIn, request))
	if response != nil {
		args = append(args, output(uapi.AttrCoreOut, response))
	}
	return r.ioctl(uapi.ObjectDevice, uapi.MethodInvokeWrite, args...)
}

func (r *raw) getContext(req *uapi.MLX5AllocUContextReqV2, resp *uapi.MLX5AllocUContextResp) error {
	r.t.Helper()
	if resp == nil {
		resp = new(uapi.MLX5AllocUContextResp)
	}
	return r.ioctl(uapi.ObjectDevice, uapi.MethodGetContext, input(uapi.AttrUHWIn, bytesOf(req)), output(uapi.AttrUHWOut, bytesOf(resp)))
}

// eventFile makes a file of asynchronous events, and is its number.
func (r *raw) eventFile() (fd uint64) {
	r.t.Helper()
	r.must(r.ioctl(uapi.ObjectAsyncEvent, uapi.MethodAsyncEventAlloc, fresh(uapi.AttrAsyncEventAllocFDHandle, &fd)))
	r.t.Cleanup(func() { _ = unix.Close(int(fd)) })
	return fd
}

// allocPD is the handle and the number of a new PD.
func (r *raw) allocPD() (handle, num uint32) {
	r.t.Helper()
	var resp uapi.AllocPDResp
	r.must(r.write(uapi.CmdAllocPD, make([]byte, 8), bytesOf(&resp), output(uapi.AttrUHWOut, bytesOf(&num))))
	return resp.PDHandle, num
}

// allocUAR is the number of a new page of doorbells.
func (r *raw) allocUAR() (page uint32) {
	r.t.Helper()
	var handle, offset uint64
	var length uint32
	r.must(r.ioctl(uapi.ObjectMLX5UAR, uapi.MethodMLX5UARAlloc, fresh(uapi.AttrMLX5UARAllocHandle, &handle), constantOf(uapi.AttrMLX5UARAllocType, uapi.MLX5UARTypeNC),
		output(uapi.AttrMLX5UARAllocMMapOffset, bytesOf(&offset)), output(uapi.AttrMLX5UARAllocMMapLength, bytesOf(&length)), output(uapi.AttrMLX5UARAllocPageID, bytesOf(&page))))
	return page
}

// makeCQ makes a CQ at the beginning of the memory, which is the adapter's, with its record
// in the last page.
func (r *raw) makeCQ(page, entries uint32, user uint64, more ...arg) (handle uint64, err error) {
	r.t.Helper()
	for at := 63; at < rawMem-pageSize; at += 64 {
		r.mem.Bytes()[at] = mlx5prm.CQEInvalid << 4
	}
	req := uapi.MLX5CreateCQ{BufAddr: r.mem.Addr(), DBAddr: r.record(0), CQESize: 64, Flags: uapi.MLX5CreateCQUARPageIndex, UARPageIndex: uint16(page)}
	var resp uapi.MLX5CreateCQResp
	var got uint32
	return handle, r.ioctl(uapi.ObjectCQ, uapi.MethodCQCreate, append(more, fresh(uapi.AttrCreateCQHandle, &handle), input(uapi.AttrCreateCQCQE, u32(entries)),
		input(uapi.AttrCreateCQUserHandle, u64(user)), input(uapi.AttrCreateCQCompVector, u32(0)), output(uapi.AttrCreateCQRespCQE, bytesOf(&got)),
		input(uapi.AttrUHWIn, bytesOf(&req)), output(uapi.AttrUHWOut, bytesOf(&resp)))...)
}

// record is where the doorbell record i lies.
func (r *raw) record(i int) uint64 {
	return r.mem.Addr() + rawMem - pageSize + uint64(i)*mlx5prm.RecordSize
}

// makeSRQ makes an SRQ of 64-byte entries, and is how many receives it takes.
func (r *raw) makeSRQ(pd, wr uint32) (handle uint64, takes uint32, err error) {
	r.t.Helper()
	req := uapi.MLX5CreateSRQ{BufAddr: r.mem.Addr(), DBAddr: r.record(1)}
	var resp uapi.MLX5CreateSRQResp
	var sge uint32
	err = r.ioctl(uapi.ObjectSRQ, uapi.MethodSRQCreate, fresh(uapi.AttrCreateSRQHandle, &handle), handleOf(uapi.AttrCreateSRQPDHandle, uint64(pd)),
		input(uapi.AttrCreateSRQUserHandle, u64(0)), input(uapi.AttrCreateSRQMaxWR, u32(wr)), input(uapi.AttrCreateSRQMaxSGE, u32(3)), input(uapi.AttrCreateSRQLimit, u32(0)),
		constantOf(uapi.AttrCreateSRQType, uapi.SRQTBasic), output(uapi.AttrCreateSRQRespMaxWR, bytesOf(&takes)), output(uapi.AttrCreateSRQRespMaxSGE, bytesOf(&sge)),
		input(uapi.AttrUHWIn, bytesOf(&req)), output(uapi.AttrUHWOut, bytesOf(&resp)))
	return handle, takes, err
}

// makeQP makes a queue pair of 4 blocks to send and some receives of 64 bytes each.
func (r *raw) makeQP(pd, page, receives uint32, cq uint64, typ driver.QPType, more ...arg) (handle uint64, takes uapi.QPCap) {
	r.t.Helper()
	req := uapi.MLX5CreateQP{BufAddr: r.mem.Addr(), DBAddr: r.record(2), SQWQECount: 4, RQWQECount: receives, Flags: uapi.MLX5QPFlagUARPageIndex, BFRegIndex: page}
	if receives != 0 {
		req.RQWQEShift = 6
	}
	asked := uapi.QPCap{MaxSendWR: 2, MaxRecvWR: 3, MaxSendSGE: 1, MaxRecvSGE: 1, MaxInlineData: 12}
	var resp uapi.MLX5CreateQPResp
	var num uint32
	r.must(r.ioctl(uapi.ObjectQP, uapi.MethodQPCreate, append(more, fresh(uapi.AttrCreateQPHandle, &handle), handleOf(uapi.AttrCreateQPPDHandle, uint64(pd)),
		handleOf(uapi.AttrCreateQPSendCQHandle, cq), handleOf(uapi.AttrCreateQPRecvCQHandle, cq), input(uapi.AttrCreateQPUserHandle, u64(0)),
		input(uapi.AttrCreateQPCap, bytesOf(&asked)), constantOf(uapi.AttrCreateQPType, uint64(typ)), output(uapi.AttrCreateQPRespCap, bytesOf(&takes)),
		output(uapi.AttrCreateQPRespQPNum, bytesOf(&num)), input(uapi.AttrUHWIn, bytesOf(&req)), output(uapi.AttrUHWOut, bytesOf(&resp)))...))
	return handle, takes
}
