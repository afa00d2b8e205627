//go:build hw

package uverbs_test

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
	"time"
	"unsafe"

	"github.com/purerdma/purerdma/ibverbs"
	"github.com/purerdma/purerdma/ibverbs/driver"
	"github.com/purerdma/purerdma/ibverbs/internal/kernel"
	"github.com/purerdma/purerdma/ibverbs/internal/rxe"
	"github.com/purerdma/purerdma/ibverbs/internal/uapi"
	"github.com/purerdma/purerdma/ibverbs/internal/uverbs/uverbstest"
	"github.com/purerdma/purerdma/internal/hwtest"
	"github.com/purerdma/purerdma/mr"
	"golang.org/x/sys/unix"
)

// onlyOurs is the commands that only this module issues in this script.
var onlyOurs = map[string]string{
	"MR.REG_MR":                           "newer kernels have a method for it, which is tried once; rdma-core 44 does not know it",
	"DEVICE.INVOKE_WRITE EX_QUERY_DEVICE": "the driver wants the limits when it opens the device, to explain refusals",
	"DEVICE.QUERY_PORT":                   "for the length of the GID table, and for the MTU before RTR and RTS, which Soft-RoCE does not check",
	"DEVICE.QUERY_GID_TABLE":              "for the net devices that have to join a multicast group",
}

// differs is the parts of inputs that are not the same in two runs: handles,
// addresses, and numbers that the kernel gives out.
var differs = map[string][]struct {
	attr     uint16
	off, len uintptr
	why      string
}{
	"DEVICE.INVOKE_WRITE ALLOC_PD":            {{uapi.AttrCoreIn, 0, 8, response}},
	"DEVICE.INVOKE_WRITE CREATE_COMP_CHANNEL": {{uapi.AttrCoreIn, 0, 8, response}},
	"DEVICE.INVOKE_WRITE REG_MR": {{uapi.AttrCoreIn, 0, 8, response},
		{uapi.AttrCoreIn, unsafe.Offsetof(uapi.RegMR{}.Start), 8, "address"},
		{uapi.AttrCoreIn, unsafe.Offsetof(uapi.RegMR{}.HCAVA), 8, "address"},
		{uapi.AttrCoreIn, unsafe.Offsetof(uapi.RegMR{}.PDHandle), 4, "handle"}},
	"DEVICE.INVOKE_WRITE REQ_NOTIFY_CQ": {{uapi.AttrCoreIn, 0, 4, "handle"}},
	"DEVICE.INVOKE_WRITE MODIFY_QP": {{uapi.AttrCoreIn, unsafe.Offsetof(uapi.ModifyQP{}.QPHandle), 4, "handle"},
		{uapi.AttrCoreIn, unsafe.Offsetof(uapi.ModifyQP{}.DestQPNum), 4, "number of the QP"}},
	"DEVICE.INVOKE_WRITE QUERY_QP": {{uapi.AttrCoreIn, 0, 8, response}, {uapi.AttrCoreIn, 8, 4, "handle"}},
	"DEVICE.INVOKE_WRITE POST_SEND": {{uapi.AttrCoreIn, 0, 8, response}, {uapi.AttrCoreIn, 8, 4, "handle"},
		{uapi.AttrCoreIn, unsafe.Offsetof(uapi.PostSend{}.WQESize), 4, "size of a structure of its own there, which has to be 56 or more"}},
	"DEVICE.INVOKE_WRITE RESIZE_CQ":  {{uapi.AttrCoreIn, 0, 8, response}, {uapi.AttrCoreIn, 8, 4, "handle"}},
	"DEVICE.INVOKE_WRITE MODIFY_SRQ": {{uapi.AttrCoreIn, 0, 4, "handle"}, {uapi.AttrUHWIn, 0, 8, "address for the ring"}},
	"DEVICE.INVOKE_WRITE QUERY_SRQ":  {{uapi.AttrCoreIn, 0, 8, response}, {uapi.AttrCoreIn, 8, 4, "handle"}},
	"DEVICE.INVOKE_WRITE CREATE_AH": {{uapi.AttrCoreIn, 0, 8, response},
		{uapi.AttrCoreIn, unsafe.Offsetof(uapi.CreateAH{}.UserHandle), 8, "an address there, nothing here"},
		{uapi.AttrCoreIn, unsafe.Offsetof(uapi.CreateAH{}.PDHandle), 4, "handle"}},
	"DEVICE.INVOKE_WRITE ALLOC_MW":     {{uapi.AttrCoreIn, 0, 8, response}, {uapi.AttrCoreIn, 8, 4, "handle"}},
	"DEVICE.INVOKE_WRITE ATTACH_MCAST": {{uapi.AttrCoreIn, unsafe.Offsetof(uapi.AttachMcast{}.QPHandle), 4, "handle"}},
	"DEVICE.INVOKE_WRITE DETACH_MCAST": {{uapi.AttrCoreIn, unsafe.Offsetof(uapi.AttachMcast{}.QPHandle), 4, "handle"}},
	"SRQ.CREATE":                       {{uapi.AttrCreateSRQUserHandle, 0, 8, "an address there, a number here"}},
	"CQ.CREATE":                        {{uapi.AttrCreateCQUserHandle, 0, 8, "an address there, a number here"}},
	"QP.CREATE":                        {{uapi.AttrCreateQPUserHandle, 0, 8, "an address there, a number here"}},
	"MR.REG_DMABUF_MR":                 {{uapi.AttrRegDMABufMRFD, 0, 4, "descriptor"}},
}

const response = "address of the response, which the kernel ignores"

// TestSameFramesAsRDMACore makes the same calls through this module and, in
// testdata/rdmacore/script.c, through libibverbs, and compares what goes to the
// kernel.
func TestSameFramesAsRDMACore(t *testing.T) {
	place := hwtest.Pick(t)
	info := deviceInfo(t, place.Device)
	if info.Driver != "rxe" {
		t.Skipf("the script is for Soft-RoCE, %s is driven by %s", place.Device, info.Driver)
	}
	theirs := dumpOfRDMACore(t, place)
	ours := traceOfOurs(t, place)
	i, j, same := 0, 0, 0
	for i < len(ours) && j < len(theirs) {
		o, th := normal(ours[i]), normal(theirs[j])
		why, extra := onlyOurs[ours[i].Name()]
		switch {
		case o == th:
			i, j, same = i+1, j+1, same+1
		case extra:
			t.Logf("only this module: %s (%s)", ours[i].Name(), why)
			i++
		default:
			t.Fatalf("command %d\nthis module %s\nrdma-core   %s", i, o, th)
		}
	}
	for ; i < len(ours); i++ {
		t.Errorf("only this module: %v", ours[i])
	}
	for ; j < len(theirs); j++ {
		t.Errorf("only rdma-core: %v", theirs[j])
	}
	t.Logf("%d commands are the same", same)
}

func deviceInfo(t *testing.T, name string) ibverbs.DeviceInfo {
	t.Helper()
	devices, _ := ibverbs.Devices()
	for _, d := range devices {
		if d.Info().Name == name {
			return d.Info()
		}
	}
	t.Fatalf("%s is gone", name)
	return ibverbs.DeviceInfo{}
}

// normal is a record without what differs between two runs.
func normal(r uverbstest.Record) string {
	r.Write = false // rdma-core rings the doorbell by write(2), with the same bytes
	for i, a := range r.Attrs {
		if r.Method == uverbstest.CQCreate && a.ID == uapi.AttrCreateCQEventFD {
			r.Attrs[i].Flags = 0 // optional there, for kernels that are too old here
		}
	}
	for _, d := range differs[r.Name()] {
		for _, a := range r.Attrs {
			if a.ID == d.attr {
				clear(a.Value[d.off : d.off+d.len])
			}
		}
	}
	return r.String()
}

// dumpOfRDMACore builds and runs the C program.
func dumpOfRDMACore(t *testing.T, p hwtest.Place) []uverbstest.Record {
	t.Helper()
	gcc, err := exec.LookPath("gcc")
	if err != nil {
		t.Skipf("needs gcc: %v", err)
	}
	if _, err := os.Stat("/usr/include/infiniband/verbs.h"); err != nil {
		t.Skipf("needs libibverbs-dev: %v", err)
	}
	dir := t.TempDir()
	run := func(name string, args ...string) {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
		defer cancel()
		cmd := exec.CommandContext(ctx, name, args...)
		cmd.Env = append(os.Environ(), "PURERDMA_DUMP="+filepath.Join(dir, "dump"))
		if name != gcc {
			cmd.Env = append(cmd.Env, "LD_PRELOAD="+filepath.Join(dir, "dump.so"))
		}
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%s %v: %v\n%s", name, args, err, out)
		}
	}
	const src = "testdata/rdmacore/"
	run(gcc, "-shared", "-fPIC", "-o", filepath.Join(dir, "dump.so"), src+"dump.c", "-ldl")
	run(gcc, "-D_GNU_SOURCE", "-o", filepath.Join(dir, "script"), src+"script.c", "-libverbs")
	run(filepath.Join(dir, "script"), p.Device, strconv.Itoa(p.Port), strconv.Itoa(p.GID.Index), strconv.Itoa(int(p.MTU)))
	b, err := os.ReadFile(filepath.Join(dir, "dump"))
	if err != nil {
		t.Fatal(err)
	}
	records, err := uverbstest.ReadDump(bytes.NewReader(b))
	if err != nil {
		t.Fatalf("%v\n%s", err, b)
	}
	return records
}

// traceOfOurs makes the calls of script.c.
func traceOfOurs(t *testing.T, p hwtest.Place) []uverbstest.Record {
	t.Helper()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	w := kernel.Default()
	tracer := &uverbstest.Tracer{Kernel: w.Kernel}
	w.Kernel = tracer
	dev, err := ibverbs.Open(p.Device, ibverbs.WithDrivers(kernel.New(w, rxe.New())))
	must(err)
	defer dev.Close()
	_, err = dev.Query()
	must(err)
	_, err = dev.Port(p.Port)
	must(err)
	_, err = dev.GIDs(p.Port)
	must(err)

	pd, err := dev.AllocPD()
	must(err)
	buf, err := mr.Alloc(4096)
	must(err)
	defer buf.Close()
	reg, err := pd.RegMR(buf, ibverbs.LocalWrite|ibverbs.RemoteWrite|ibverbs.RemoteRead|ibverbs.RemoteAtomic|ibverbs.RelaxedOrdering)
	must(err)
	fd, err := unix.MemfdCreate("not a dma-buf", unix.MFD_CLOEXEC)
	must(err)
	defer unix.Close(fd)
	if _, err := pd.RegDMABuf(ibverbs.DMABuf{FD: fd, Offset: 0x1000, Length: 0x2000, IOVA: 0x7000}, ibverbs.LocalWrite|ibverbs.RemoteRead); err == nil {
		t.Fatal("DMA-BUF was taken")
	}
	ch, err := dev.CreateCompChannel()
	must(err)
	cq, err := dev.CreateCQ(16, ibverbs.WithChannel(ch))
	must(err)
	must(cq.Arm(false))
	must(cq.Arm(true))
	qp, err := pd.CreateQP(ibverbs.QPConfig{Type: ibverbs.RC, SendCQ: cq, RecvCQ: cq,
		Cap: ibverbs.QPCap{SendWR: 4, RecvWR: 5, SendSGE: 2, RecvSGE: 3, Inline: 64}})
	must(err)

	must(qp.Modify(&ibverbs.QPAttr{State: ibverbs.StateInit, Port: p.Port, Access: ibverbs.RemoteWrite | ibverbs.RemoteRead | ibverbs.RemoteAtomic},
		driver.QPStateMask|driver.QPPKeyIndex|driver.QPPort|driver.QPAccessFlags))
	_, err = qp.PostRecv(ibverbs.RecvWR{ID: 1, SGL: []ibverbs.SGE{reg.SGE(0, 64)}})
	must(err)
	must(qp.Modify(&ibverbs.QPAttr{State: ibverbs.StateRTR, PathMTU: p.MTU, DestQPN: qp.Num(), RQPSN: 0xabcdef, MaxDestRdAtomic: 3, MinRNRTimer: 12,
		AH: ibverbs.AHAttr{IsGlobal: true, Port: p.Port, SL: 1, DGID: p.GID.GID, SGIDIndex: p.GID.Index, HopLimit: 64, FlowLabel: 0x12345, TrafficClass: 0x68}},
		driver.QPStateMask|driver.QPAV|driver.QPPathMTU|driver.QPDestQPN|driver.QPRQPSN|driver.QPMaxDestRdAtomic|driver.QPMinRNRTimer))
	must(qp.Modify(&ibverbs.QPAttr{State: ibverbs.StateRTS, Timeout: 14, RetryCnt: 6, RNRRetry: 5, SQPSN: 0xabcdef, MaxRdAtomic: 4},
		driver.QPStateMask|driver.QPTimeout|driver.QPRetryCnt|driver.QPRNRRetry|driver.QPSQPSN|driver.QPMaxQPRdAtomic))
	_, err = qp.Query()
	must(err)

	_, err = qp.PostSend(ibverbs.SendWR{ID: 2, Op: ibverbs.OpSend, Flags: ibverbs.Signaled, SGL: []ibverbs.SGE{reg.SGE(64, 64)}})
	must(err)
	var wcs [2]ibverbs.WC
	deadline := time.Now().Add(20 * time.Second)
	for done := 0; done < 2; {
		n, err := cq.Poll(wcs[:])
		must(err)
		for i := range wcs[:n] {
			must(cq.Err(&wcs[i]))
		}
		if done += n; n == 0 {
			if time.Now().After(deadline) {
				t.Fatalf("%d completions of 2", done)
			}
			time.Sleep(time.Millisecond)
		}
	}

	must(cq.Resize(40))
	srq, err := pd.CreateSRQ(ibverbs.SRQConfig{WR: 9, SGE: 2, Limit: 3})
	must(err)
	must(srq.SetLimit(4))
	must(srq.Resize(20))
	if a, err := srq.Query(); err != nil || a.Limit != 4 {
		t.Fatal(a, err)
	}
	ud, err := pd.CreateQP(ibverbs.QPConfig{Type: ibverbs.UD, SendCQ: cq, RecvCQ: cq, SRQ: srq, Cap: ibverbs.QPCap{SendWR: 4, SendSGE: 1}})
	must(err)
	must(ud.Modify(&ibverbs.QPAttr{State: ibverbs.StateInit, Port: p.Port, QKey: 0x11111111},
		driver.QPStateMask|driver.QPPKeyIndex|driver.QPPort|driver.QPQKey))
	must(ud.Modify(&ibverbs.QPAttr{State: ibverbs.StateRTR}, driver.QPStateMask))
	must(ud.Modify(&ibverbs.QPAttr{State: ibverbs.StateRTS, SQPSN: 0x123}, driver.QPStateMask|driver.QPSQPSN))
	ah, err := pd.CreateAH(ibverbs.AHAttr{IsGlobal: true, Port: p.Port, SL: 2, DGID: p.GID.GID, SGIDIndex: p.GID.Index, HopLimit: 3, FlowLabel: 0x54321, TrafficClass: 0x20})
	must(err)
	_, err = ud.PostSend(ibverbs.SendWR{ID: 3, Op: ibverbs.OpSend, Flags: ibverbs.Signaled, SGL: []ibverbs.SGE{reg.SGE(64, 64)}, UD: ah.To(ud.Num(), 0x11111111)})
	must(err)
	group := ibverbs.GID{0xff, 0x0e, 15: 0x77}
	must(ud.AttachMulticast(group, 0))
	must(ud.DetachMulticast(group, 0))
	mw, err := pd.AllocMW()
	must(err)
	must(mw.Close())
	must(ah.Close())
	must(ud.Close())
	must(srq.Close())

	must(qp.Close())
	must(cq.Close())
	must(ch.Close())
	must(reg.Close())
	must(pd.Close())
	must(dev.Close())
	return tracer.Records()
}
