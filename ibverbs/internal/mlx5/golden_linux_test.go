package mlx5

import (
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/purerdma/purerdma/ibverbs/driver"
	"github.com/purerdma/purerdma/ibverbs/internal/uverbs"
	"github.com/purerdma/purerdma/internal/mlx5prm"
)

// goldenFile is what testdata/capture printed with libmlx5 of rdma-core 44.0.
const goldenFile = "testdata/libmlx5.txt"

// golden is its lines by name, and the names in order.
func golden(t *testing.T) (lines map[string]string, names []string) {
	t.Helper()
	text, err := os.ReadFile(goldenFile)
	if err != nil {
		t.Fatal(err)
	}
	lines = map[string]string{}
	for line := range strings.Lines(string(text)) {
		name, rest, _ := strings.Cut(strings.TrimSpace(line), " ")
		lines[name] = rest
		names = append(names, name)
	}
	return lines, names
}

// TestGoldenIsLibmlx5s makes the lines anew. Without a compiler or rdma-core the test is
// skipped, except in CI.
func TestGoldenIsLibmlx5s(t *testing.T) {
	missing := func(err error) {
		t.Helper()
		if ci, _ := strconv.ParseBool(os.Getenv("CI")); ci {
			t.Fatal(err)
		}
		t.Skipf("needs gcc, libibverbs-dev and ibverbs-providers: %v", err)
	}
	if _, err := exec.LookPath("gcc"); err != nil {
		missing(err)
	}
	if _, err := os.Stat("/usr/include/infiniband/mlx5dv.h"); err != nil {
		missing(err)
	}
	dir := t.TempDir()
	exe := filepath.Join(dir, "capture")
	if out, err := exec.CommandContext(t.Context(), "gcc", "-Wall", "-Werror", "-O1", "-o", exe, "testdata/capture/main.c", "-libverbs", "-lmlx5", "-ldl").CombinedOutput(); err != nil {
		t.Fatalf("gcc: %v\n%s", err, out)
	}
	for name, text := range map[string]string{
		"class/infiniband_verbs/abi_version":         "6",
		"class/infiniband_verbs/uverbs0/ibdev":       "mlx5_0",
		"class/infiniband_verbs/uverbs0/dev":         "231:192",
		"class/infiniband_verbs/uverbs0/abi_version": "1",
		"class/infiniband/mlx5_0/node_type":          "1: CA",
		"class/infiniband/mlx5_0/node_guid":          "0002:c903:0000:1234",
		"class/infiniband/mlx5_0/sys_image_guid":     "0002:c903:0000:1234",
		"class/infiniband/mlx5_0/fw_ver":             "20.31.1014",
		"class/infiniband/mlx5_0/device/modalias":    "pci:v000015B3d0000101Bsv000015B3sd00000006bc02sc07i00",
	} {
		file := filepath.Join(dir, "sys", name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o755), os.WriteFile(file, []byte(text+"\n"), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.CommandContext(t.Context(), exe)
	cmd.Env = []string{"SYSFS_PATH=" + filepath.Join(dir, "sys")}
	late := time.AfterFunc(time.Minute, func() { _ = cmd.Process.Kill() })
	defer late.Stop()
	var said strings.Builder
	cmd.Stderr = &said
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v\n%s", err, &said)
	}
	want, err := os.ReadFile(goldenFile)
	if err != nil {
		t.Fatal(err)
	}
	if string(out) != string(want) {
		t.Errorf("libmlx5 makes\n%s\nwant\n%s", out, want)
	}
}

// goldenCap is the sizes of the queue pairs of testdata/capture, goldenQPN their number.
var goldenCap = driver.QPCap{SendWR: 8, RecvWR: 4, SendSGE: 2, RecvSGE: 2, Inline: 64}

const goldenQPN = 0xabc

func goldenRig(t *testing.T, k *fakeMLX5, typ driver.QPType) *rig {
	r := newRig(t, k, 64, driver.QPConfig{Type: typ, Cap: goldenCap})
	r.qp.sq.qpn = goldenQPN
	return r
}

var (
	goldenSGL   = []driver.SGE{{Addr: 0x1122334455667788, Length: 0x100, LKey: 0xabcd}, {Addr: 0x99, Length: 1, LKey: 2}}
	goldenOne   = goldenSGL[:1]
	goldenEight = []driver.SGE{{Addr: 2, Length: 8, LKey: 3}}
)

// entries posts each request and compares what it became.
func (r *rig) entries(t *testing.T, want map[string]string, wrs []namedWR) {
	t.Helper()
	for _, c := range wrs {
		block := r.qp.sq.cur
		r.post(c.wr)
		head := r.qp.sq.ctrl(block * mlx5prm.SendBB)
		got := hex.EncodeToString(r.qp.sq.bytes(block*mlx5prm.SendBB, head.DS()*mlx5prm.DSUnit))
		if got != want[c.name] {
			t.Errorf("%s is\n%s, libmlx5 makes\n%s", c.name, got, want[c.name])
		}
		r.complete(mlx5prm.CQEReq, block, nil)
		r.poll(1)
		delete(want, c.name)
	}
}

type namedWR struct {
	name string
	wr   driver.SendWR
}

// TestEntriesAreLibmlx5s posts what testdata/capture posts.
func TestEntriesAreLibmlx5s(t *testing.T) {
	want, _ := golden(t)
	for name := range want {
		if strings.HasPrefix(name, "completion-") || strings.HasPrefix(name, "syndrome-") {
			delete(want, name)
		}
	}
	r := goldenRig(t, newFake(), driver.RC)
	m := &MR{pd: r.pd.(*PD), mr: uverbs.MR{LKey: 0x1100}, iova: 0x700000000000, length: 8192, access: bindable}
	w := &MW{pd: r.pd.(*PD)}
	w.key.Store(0x1200)
	r.c.windows.byIndex[0x12] = w
	remote, atomics := driver.Remote{Addr: 0x8877665544332211, RKey: 0x1234}, driver.Remote{Addr: 0x8877665544332210, RKey: 0x1234}
	r.entries(t, want, []namedWR{
		{"send", driver.SendWR{Op: driver.OpSend, SGL: goldenOne}},
		{"send-signaled", driver.SendWR{Op: driver.OpSend, Flags: driver.Signaled}},
		{"send-solicited-fenced", driver.SendWR{Op: driver.OpSend, Flags: driver.Solicited | driver.Fence, SGL: goldenSGL}},
		{"send-imm", driver.SendWR{Op: driver.OpSendWithImm, Imm: 0xdeadbeef, SGL: goldenOne}},
		{"send-inv", driver.SendWR{Op: driver.OpSendWithInv, Imm: 0x4321, SGL: goldenOne}},
		{"write", driver.SendWR{Op: driver.OpWrite, SGL: goldenOne, Remote: remote}},
		{"write-imm", driver.SendWR{Op: driver.OpWriteWithImm, Imm: 7, SGL: goldenOne, Remote: remote}},
		{"read", driver.SendWR{Op: driver.OpRead, SGL: goldenSGL, Remote: remote}},
		{"cmp-swap", driver.SendWR{Op: driver.OpCmpSwap, SGL: goldenEight, Remote: atomics, CompareAdd: 0xc0, Swap: 0x5a}},
		{"fetch-add", driver.SendWR{Op: driver.OpFetchAdd, SGL: goldenEight, Remote: atomics, CompareAdd: 0xadd}},
		{"write-inline", driver.SendWR{Op: driver.OpWrite, Inline: []byte("hello"), Remote: remote}},
		{"send-inline-50", driver.SendWR{Op: driver.OpSend, Inline: []byte("hello, here are more than thirty-two bytes of data")}},
		{"bind-mw", driver.SendWR{Op: driver.OpBindMW, Bind: &driver.BindMW{MW: w, MR: m, Addr: m.iova, Length: 4096, RKey: 0x1277,
			Access: driver.RemoteWrite | driver.RemoteRead | driver.RemoteAtomic}}},
		{"send-after-bind", driver.SendWR{Op: driver.OpSend, SGL: goldenOne}},
		{"local-inv", driver.SendWR{Op: driver.OpLocalInv, Imm: 0x1277}},
		{"send-fenced-after-inv", driver.SendWR{Op: driver.OpSend, Flags: driver.Fence, SGL: goldenOne}},
	})
	delete(r.c.windows.byIndex, 0x12)
	recvs := []driver.RecvWR{{SGL: goldenOne}, {SGL: goldenSGL}}
	if n, err := r.qp.PostRecv(recvs); n != 2 || err != nil {
		t.Fatal(n, err)
	}
	same(t, "the receive queue", r.qp.rq.bytes(0, 1<<20), want["receives"])
	delete(want, "receives")

	for port, names := range map[driver.LinkLayer][]string{driver.LinkInfiniBand: {"ud-infiniband", "ud-infiniband-local"}, driver.LinkEthernet: {"ud-roce-v1", "ud-roce-v2"}} {
		for _, name := range names {
			k := newFake()
			k.ethernet(map[string]uint32{"ud-roce-v1": 1, "ud-roce-v2": 2}[name])
			k.port.LinkLayer = uint8(port)
			u := goldenRig(t, k, driver.UD)
			to := driver.AHAttr{DGID: driver.GID{0xfe, 0x80, 15: 9}, SGIDIndex: 3, Port: 1, FlowLabel: 0x12345, HopLimit: 0x40, TrafficClass: 0x11,
				SL: 5, DLID: 0x4321, SrcPathBits: 6, StaticRate: 3, IsGlobal: name != "ud-infiniband-local"}
			u.qp.sq.cur = map[string]uint32{"ud-infiniband-local": 2, "ud-roce-v1": 4, "ud-roce-v2": 6}[name]
			wr := driver.SendWR{Op: driver.OpSend, SGL: goldenOne, UD: u.to(to)}
			switch name {
			case "ud-infiniband":
				wr.Op = driver.OpSendWithImm
			case "ud-roce-v1":
				// The table of the fake has one GID; the other program's is at index 4.
				wr.Op, wr.Imm = driver.OpSendWithImm, 2
				wr.UD.AH.(*AH).av.GRHGIDFL.Set(4<<20 | 0x12345)
			}
			u.entries(t, want, []namedWR{{name, wr}})
		}
	}

	_, srq := newSharedRig(t, newFake(), driver.SRQConfig{WR: 3, SGE: 2})
	if n, err := srq.PostRecv(recvs); n != 2 || err != nil {
		t.Fatal(n, err)
	}
	same(t, "the shared queue", srq.q.bytes(0, 1<<20), want["shared-receives"])
	delete(want, "shared-receives")
	for name := range want {
		t.Errorf("%s was not compared", name)
	}
}

// TestCompletionsAreLibmlx5s takes the completions that testdata/capture takes.
func TestCompletionsAreLibmlx5s(t *testing.T) {
	ops := map[string]driver.SendWR{"send": {Op: driver.OpSend}, "send-inv": {Op: driver.OpSendWithInv}, "write": {Op: driver.OpWrite}, "read": {Op: driver.OpRead},
		"cmp-swap": {Op: driver.OpCmpSwap, SGL: goldenEight}, "fetch-add": {Op: driver.OpFetchAdd, SGL: goldenEight}}
	receives := map[string]uint8{"receive": mlx5prm.CQERespSend, "receive-imm": mlx5prm.CQERespSendImm, "receive-inv": mlx5prm.CQERespSendInv,
		"receive-write-imm": mlx5prm.CQERespWrImm}
	lines, names := golden(t)
	seen := 0
	for _, name := range names {
		kind, ok := strings.CutPrefix(name, "completion-")
		if !ok {
			continue
		}
		seen++
		var wc driver.WC
		if opcode, ok := receives[kind]; ok {
			r := goldenRig(t, newFake(), driver.UD)
			if n, err := r.qp.PostRecv(make([]driver.RecvWR, 1)); n != 1 || err != nil {
				t.Fatal(n, err)
			}
			r.complete(opcode, 0, func(e *mlx5prm.CQE) {
				e.FlagsRQPN.Set(2<<28 | 5<<24 | 0xbadbad)
				e.SLID.Set(0x77)
				e.MLPath = 0x89
				e.ByteCnt.Set(77)
				e.ImmInvalPKey.Set(0xdeadbeef)
			})
			wc = r.poll(1)[0]
		} else {
			r := goldenRig(t, newFake(), driver.RC)
			r.post(ops[kind])
			code := r.qp.sq.ctrl(0).Opcode()
			r.complete(mlx5prm.CQEReq, 0, func(e *mlx5prm.CQE) { e.SOpDropQPN[0] = code; e.ByteCnt.Set(77) })
			wc = r.poll(1)[0]
		}
		if got := fmt.Sprintf("op=%d status=%d len=%d imm=%08x flags=%d src=%x sl=%d slid=%x path=%d", wc.Op, wc.Status, wc.ByteLen, wc.Imm,
			wc.Flags, wc.SrcQP, wc.SL, wc.SLID, wc.PathBits); got != lines[name] {
			t.Errorf("%s: %s, libmlx5 says %s", kind, got, lines[name])
		}
	}
	if seen != len(ops)+len(receives) {
		t.Errorf("%d completions were compared", seen)
	}
}

// TestStatusesAreLibmlx5s has the status of every syndrome.
func TestStatusesAreLibmlx5s(t *testing.T) {
	lines, _ := golden(t)
	for s := range 64 {
		want := lines[fmt.Sprintf("syndrome-%02x", s)]
		if got := fmt.Sprint(uint8(status(uint8(s)))); got != want {
			t.Errorf("syndrome %#x is status %s, libmlx5 says %s", s, got, want)
		}
	}
}
