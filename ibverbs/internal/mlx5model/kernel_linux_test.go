package mlx5model

import (
	"errors"
	"syscall"
	"testing"

	"github.com/purerdma/purerdma/ibverbs/driver"
	"github.com/purerdma/purerdma/ibverbs/internal/uapi"
	"github.com/purerdma/purerdma/internal/mlx5prm"
	"golang.org/x/sys/unix"
)

// TestGetContext: a context for DEVX is refused, what a program is told of one depends on
// the link, and who has the descriptor later is told the same.
func TestGetContext(t *testing.T) {
	for ethernet, inline := range map[bool]uint8{false: 0, true: inlineNone} {
		r := newRaw(t, Config{Ethernet: ethernet})
		req := uapi.MLX5AllocUContextReqV2{MaxCQEVersion: 1, LibCaps: uapi.MLX5LibCapDynUAR, Flags: 1}
		if err := r.getContext(&req, nil); !errors.Is(err, syscall.EINVAL) {
			t.Errorf("a context for DEVX: %v", err)
		}
		req.Flags = 0
		var first, again uapi.MLX5AllocUContextResp
		r.must(r.getContext(&req, &first))
		if first.EthMinInline != inline || int(first.ResponseLength) != len(bytesOf(&first)) || first.CQEVersion != 1 {
			t.Errorf("Ethernet %v: %+v", ethernet, first)
		}
		r.must(r.ioctl(uapi.ObjectDevice, uapi.MethodQueryContext, output(uapi.AttrMLX5QueryContextRespUCtx, bytesOf(&again))))
		if again != first {
			t.Errorf("QUERY_CONTEXT says %+v, GET_CONTEXT said %+v", again, first)
		}
		short := make([]byte, 48)
		r.must(r.ioctl(uapi.ObjectDevice, uapi.MethodQueryContext, output(uapi.AttrMLX5QueryContextRespUCtx, short)))
		if n := structOf[uapi.MLX5AllocUContextResp](short).ResponseLength; n != 48 {
			t.Errorf("%d bytes of 48 are said to be there", n)
		}
	}
}

// TestUnknownCommands: a number that is none differs from a command that is missing.
func TestUnknownCommands(t *testing.T) {
	r := opened(t, Config{})
	for cmd, want := range map[uint32]error{
		uapi.CmdAllocPD | 1<<8:    syscall.EINVAL,
		commandMask:               syscall.EOPNOTSUPP,
		37:                        syscall.EOPNOTSUPP, // OPEN_XRCD
		37 | uapi.CmdFlagExtended: syscall.EOPNOTSUPP,
		uapi.CmdAllocPD | uapi.CmdFlagExtended | 1<<24: syscall.EINVAL,
	} {
		if err := r.write(cmd, make([]byte, 64), make([]byte, 64)); !errors.Is(err, want) {
			t.Errorf("command %#x: %v, want %v", cmd, err, want)
		}
	}
}

// TestEventFiles overruns a CQ. The event goes to the file that was named as the CQ was
// made, or else to the first one, and the end of the CQ tells how many were read.
func TestEventFiles(t *testing.T) {
	const user = 7
	r := opened(t, Config{})
	page := r.allocUAR()
	files := []uint64{r.eventFile(), r.eventFile()}
	for name, c := range map[string]struct {
		more []arg
		to   int // the file that has the event, -1 if none has
	}{
		"none named":     {nil, 0},
		"the first":      {[]arg{handleOf(uapi.AttrCreateCQEventFD, files[0])}, 0},
		"the second":     {[]arg{handleOf(uapi.AttrCreateCQEventFD, files[1]), input(uapi.AttrCreateCQFlags, u32(timestamps))}, 1},
		"may be overrun": {[]arg{input(uapi.AttrCreateCQFlags, u32(ignoreOverrun))}, -1},
	} {
		handle, err := r.makeCQ(page, 3, user, c.more...)
		r.must(err)
		r.m.mu.Lock()
		for q := range r.m.contexts {
			for range 5 {
				q.objects[uint32(handle)].(*cq).add(&mlx5prm.CQE{}, mlx5prm.CQEReq, nil)
			}
		}
		r.m.mu.Unlock()
		read := uint32(0)
		for i, fd := range files {
			var e uapi.AsyncEventDesc
			n, _, err := unix.Recvfrom(int(fd), bytesOf(&e), unix.MSG_DONTWAIT)
			if has := err == nil && n > 0; has != (i == c.to) || has && (e.Element != user || e.EventType != eventCQErr) {
				t.Errorf("%s: file %d has %d bytes, %+v, %v", name, i, n, e, err)
			}
			if err == nil {
				read++
			}
		}
		var resp uapi.DestroyCQResp
		r.must(r.ioctl(uapi.ObjectCQ, uapi.MethodCQDestroy, handleOf(uapi.AttrDestroyCQHandle, handle), output(uapi.AttrDestroyCQResp, bytesOf(&resp))))
		if resp.AsyncEventsReported != read {
			t.Errorf("%s: the end tells of %d events, %d were read", name, resp.AsyncEventsReported, read)
		}
	}
	if _, err := r.makeCQ(page, 3, user, handleOf(uapi.AttrCreateCQEventFD, 1<<20)); !errors.Is(err, syscall.EBADF) {
		t.Errorf("events to a file that is none: %v", err)
	}
	if _, err := r.makeCQ(page, 3, user, input(uapi.AttrCreateCQFlags, u32(1<<5))); !errors.Is(err, syscall.EOPNOTSUPP) {
		t.Errorf("a flag that is none: %v", err)
	}
}

// TestAccess is which rights a registration takes.
func TestAccess(t *testing.T) {
	r := opened(t, Config{})
	pd, _ := r.allocPD()
	for access, want := range map[uint32]error{
		0: nil, localWrite: nil, remoteRead: nil, localWrite | remoteWrite | remoteRead | remoteAtomic | mwBind: nil,
		zeroBased: nil, hugeTLB | localWrite: nil, uapi.AccessOptionalFirst: nil, uapi.AccessOptionalLast: nil,
		remoteWrite: syscall.EINVAL, remoteAtomic: syscall.EINVAL, 1 << 8: syscall.EINVAL, 1 << 10: syscall.EINVAL,
		onDemand: syscall.EOPNOTSUPP, onDemand | localWrite: syscall.EOPNOTSUPP,
	} {
		req := uapi.RegMR{Start: r.mem.Addr(), Length: pageSize, HCAVA: r.mem.Addr(), PDHandle: pd, AccessFlags: access}
		var resp uapi.RegMRResp
		if err := r.write(uapi.CmdRegMR, bytesOf(&req), bytesOf(&resp)); !errors.Is(err, want) {
			t.Errorf("access %#x: %v, want %v", access, err, want)
		}
	}
}

// TestHandles is what is told of objects by their handles to who did not make them.
func TestHandles(t *testing.T) {
	r := opened(t, Config{})
	handle, num := r.allocPD()
	req := uapi.RegMR{Start: r.mem.Addr(), Length: 2 * pageSize, HCAVA: 5 * pageSize, PDHandle: handle, AccessFlags: localWrite}
	var made uapi.RegMRResp
	r.must(r.write(uapi.CmdRegMR, bytesOf(&req), bytesOf(&made)))
	var got uint32
	queryPD := func(h uint32) error {
		return r.ioctl(uapi.ObjectPD, uapi.MethodMLX5PDQuery, handleOf(uapi.AttrMLX5QueryPDHandle, uint64(h)), output(uapi.AttrMLX5QueryPDRespPDN, bytesOf(&got)))
	}
	var keys [2]uint32
	var length, iova uint64
	queryMR := func(h uint32) error {
		return r.ioctl(uapi.ObjectMR, uapi.MethodQueryMR, handleOf(uapi.AttrQueryMRHandle, uint64(h)), output(uapi.AttrQueryMRRespLKey, bytesOf(&keys[0])),
			output(uapi.AttrQueryMRRespRKey, bytesOf(&keys[1])), output(uapi.AttrQueryMRRespLength, bytesOf(&length)), output(uapi.AttrQueryMRRespIOVA, bytesOf(&iova)))
	}
	r.must(queryPD(handle))
	if got != num {
		t.Errorf("the PD is %d, not %d", got, num)
	}
	r.must(queryMR(made.MRHandle))
	if keys != [2]uint32{made.LKey, made.RKey} || length != req.Length || iova != req.HCAVA {
		t.Errorf("the MR has the keys %#x, %d bytes at %#x; it was made as %+v, %+v", keys, length, iova, req, made)
	}
	for _, err := range []error{queryPD(made.MRHandle), queryMR(handle)} {
		if !errors.Is(err, syscall.EINVAL) {
			t.Errorf("a handle of another kind: %v", err)
		}
	}
	for _, err := range []error{queryPD(99), queryMR(99)} {
		if !errors.Is(err, syscall.ENOENT) {
			t.Errorf("a handle of nothing: %v", err)
		}
	}
}

// TestCapacities: of a queue pair QUERY_QP tells the capacity to receive only, as the entries
// have it, and one with an SRQ has none. An SRQ may be of no entries.
func TestCapacities(t *testing.T) {
	r := opened(t, Config{})
	page := r.allocUAR()
	pd, _ := r.allocPD()
	cq, err := r.makeCQ(page, 3, 0)
	r.must(err)
	empty, takes, err := r.makeSRQ(pd, 0)
	r.must(err)
	if takes != 0 {
		t.Errorf("an SRQ of no entries takes %d", takes)
	}
	for name, c := range map[string]struct {
		receives uint32
		srq      []arg
		made     uapi.QPCap
		wr, sge  uint32 // as they are told later
	}{
		"a receive queue":  {4, nil, uapi.QPCap{MaxSendWR: 2, MaxRecvWR: 3, MaxSendSGE: 1, MaxRecvSGE: 1, MaxInlineData: 12}, 4, 4},
		"no receive queue": {0, nil, uapi.QPCap{MaxSendWR: 2, MaxRecvWR: 3, MaxSendSGE: 1, MaxRecvSGE: 1, MaxInlineData: 12}, 0, 0},
		"a shared one":     {4, []arg{handleOf(uapi.AttrCreateQPSRQHandle, empty)}, uapi.QPCap{MaxSendWR: 2, MaxSendSGE: 1, MaxInlineData: 12}, 0, 0},
	} {
		handle, made := r.makeQP(pd, page, c.receives, cq, driver.RC, c.srq...)
		if made != c.made {
			t.Errorf("%s: made with %+v, want %+v", name, made, c.made)
		}
		req := uapi.QueryQP{QPHandle: uint32(handle)}
		var resp uapi.QueryQPResp
		r.must(r.write(uapi.CmdQueryQP, bytesOf(&req), bytesOf(&resp)))
		if resp.MaxRecvWR != c.wr || resp.MaxRecvSGE != c.sge || resp.MaxSendWR != 0 || resp.MaxSendSGE != 0 || resp.MaxInlineData != 0 {
			t.Errorf("%s: %+v", name, resp)
		}
	}
}

// TestImported is a C program that gives another descriptor of its open device to libibverbs,
// closes its own, and goes on with the objects.
func TestImported(t *testing.T) {
	l := newLab(t, false)
	if out := l.run(t, buildC(t, "testdata/import")); out != "imported\n" {
		t.Errorf("%q", out)
	}
}
