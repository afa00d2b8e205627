package kernel

import (
	"encoding/binary"
	"errors"
	"reflect"
	"syscall"
	"testing"
	"testing/fstest"

	"github.com/purerdma/purerdma/ibverbs/driver"
	"github.com/purerdma/purerdma/ibverbs/internal/uapi"
)

func nested(id uint16, items ...[]byte) []byte {
	const item, isNested = 1, 1 << 15
	var list []byte
	for _, i := range items {
		list = appendAttr(list, item|isNested, i)
	}
	return appendAttr(nil, id|isNested, list)
}

func summary(name string, n uint64) []byte {
	return append64(appendString(nil, uapi.NLDevAttrResSummaryName, name), uapi.NLDevAttrResSummaryCurr, n)
}

func append8(b []byte, id uint16, v uint8) []byte { return appendAttr(b, id, []byte{v}) }

// account is RDMA netlink of device 0 with two QPs, a CQ and an MR.
func account(cmd uint16, _ bool, ask []byte) ([][]byte, error) {
	if as, err := parseAttrs(ask); err != nil || binary.NativeEndian.Uint32(as[uapi.NLDevAttrDevIndex]) != 0 {
		return nil, syscall.ENODEV
	}
	switch cmd {
	case uapi.NLDevCmdResGet:
		return [][]byte{nested(uapi.NLDevAttrResSummary, summary("qp", 2), summary("mr", 1))}, nil
	case uapi.NLDevCmdResQPGet:
		q := append32(append32(nil, uapi.NLDevAttrPortIndex, 1), uapi.NLDevAttrResLQPN, 17)
		q = append32(append8(append8(append32(q, uapi.NLDevAttrResRQPN, 18), uapi.NLDevAttrResType, 2), uapi.NLDevAttrResState, 3), uapi.NLDevAttrResPID, 7)
		g := appendString(append8(append32(nil, uapi.NLDevAttrResLQPN, 1), uapi.NLDevAttrResType, 1), uapi.NLDevAttrResKernName, "ib_core")
		return [][]byte{nested(uapi.NLDevAttrResQP, q), nested(uapi.NLDevAttrResQP, g)}, nil
	case uapi.NLDevCmdResCQGet:
		return [][]byte{nested(uapi.NLDevAttrResCQ, append32(append64(append32(nil, uapi.NLDevAttrResCQE, 511), uapi.NLDevAttrResUseCnt, 2), uapi.NLDevAttrResPID, 9))}, nil
	case uapi.NLDevCmdResMRGet:
		return [][]byte{nested(uapi.NLDevAttrResMR, append32(append64(nil, uapi.NLDevAttrResMRLen, 1<<33), uapi.NLDevAttrResPID, 8))}, ErrInterrupted
	case uapi.NLDevCmdResSRQGet, uapi.NLDevCmdResCtxGet:
		return nil, syscall.EOPNOTSUPP // older kernels
	}
	return nil, nil
}

func TestResources(t *testing.T) {
	_, w := testWorld()
	w.Netlink, w.Proc = account, fstest.MapFS{
		"7/comm": file("train"), "7/status": file("Name:\ttrain\nTgid:\t7\nPid:\t7\n"),
		"8/comm": file("worker"), "8/status": file("Name:\tworker\nTgid:\t7\nPid:\t8\n"), // a thread of 7
		"9/status": file("Tgid:\t\n"),
	}
	got, err := w.resources(0)
	want := driver.Resources{
		Counts: map[driver.ResourceKind]int{"qp": 2, "mr": 1}, Partial: true,
		Objects: []driver.Resource{
			{Kind: "cq", PID: 9, Depth: 511, Users: 2},
			{Kind: "qp", Number: 17, PID: 7, Owner: "train", Port: 1, Type: "RC", State: driver.StateRTS, RemoteQPN: 18},
			{Kind: "qp", Number: 1, Owner: "ib_core", Type: "GSI"},
			{Kind: "mr", PID: 7, Owner: "train", Bytes: 1 << 33},
		},
	}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%v\ngot  %+v\nwant %+v", err, got, want)
	}
	if _, err := w.resources(1); !errors.Is(err, syscall.ENODEV) {
		t.Errorf("a device that is gone: %v", err)
	}
	sysfs := &device{k: &kernelDriver{w: w}, n: Node{Info: driver.DeviceInfo{Index: -1}}}
	if _, err := sysfs.Resources(); !errors.Is(err, driver.ErrNotSupported) {
		t.Errorf("without netlink: %v", err)
	}
}

// FuzzResources reads whatever the kernel might say.
func FuzzResources(f *testing.F) {
	for _, cmd := range []uint16{uapi.NLDevCmdResGet, uapi.NLDevCmdResQPGet, uapi.NLDevCmdResCQGet, uapi.NLDevCmdResMRGet} {
		msgs, _ := account(cmd, true, append32(nil, uapi.NLDevAttrDevIndex, 0))
		f.Add(msgs[0])
		f.Add(msgs[0][:len(msgs[0])-3])
	}
	f.Fuzz(func(t *testing.T, msg []byte) {
		_, w := testWorld()
		w.Proc = fstest.MapFS{}
		w.Netlink = func(uint16, bool, []byte) ([][]byte, error) { return [][]byte{msg}, nil }
		r, err := w.resources(0)
		for _, o := range r.Objects {
			if o.PID < 0 || o.Depth < 0 || o.Users < 0 {
				t.Errorf("%+v, %v", o, err)
			}
		}
		for k, n := range r.Counts {
			if n < 0 {
				t.Errorf("%s: %d", k, n)
			}
		}
	})
}
