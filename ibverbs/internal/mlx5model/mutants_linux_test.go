package mlx5model

import (
	stdcontext "context"
	"encoding/json"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"
)

// mutant is a fault to plant in the driver: one text of a file for another.
type mutant struct{ name, file, old, planted string }

// How a post stores its record and its register: by a word, and by a copy of an entry of one block.
const (
	postWord  = "mmio.PostWord(record, count, d.reg[d.turn&1], mlx5prm.SendRegister(c))"
	postBlock = "mmio.PostBlock(record, count, dst.block(0), v.block(off))"
)

var mutants = []mutant{
	{"record one too far", "sendqueue.go", "mlx5prm.Word(q.cur&mlx5prm.CounterMask)", "mlx5prm.Word((q.cur+1)&mlx5prm.CounterMask)"},
	{"no record of receives", "recvqueue.go", "mmio.Store32(q.record, mlx5prm.Word(q.head&mlx5prm.CounterMask))\n", "_ = q.record\n"},
	{"wrong index", "sendqueue.go", "c.SetHead(uint16(q.cur), ", "c.SetHead(uint16(q.cur)+1, "},
	{"index counts requests", "sendqueue.go", "q.cur += (ds + 3) / 4", "q.cur++"},
	{"ds too large", "sendqueue.go", "q.qpn, int(ds))", "q.qpn, int(ds)+1)"},
	{"ds too small", "sendqueue.go", "q.qpn, int(ds))", "q.qpn, int(ds)-1)"},
	{"wrong QPN", "sendqueue.go", "q.qpn, int(ds))", "q.qpn^1, int(ds))"},
	{"inline data not marked", "sendqueue.go", "uint32(len(data)) | mlx5prm.InlineSeg", "uint32(len(data))"},
	{"no completion asked for", "sendqueue.go", "flags |= mlx5prm.CtrlCQUpdate", "flags |= 0"},
	{"list of a receive not ended", "recvqueue.go", "d.LKey.Set(mlx5prm.InvalidLKey)", "d.LKey.Set(0)"},
	{"completions not the device's at first", "cq.go", "OpOwn = mlx5prm.Initial", "OpOwn = 0"},
	{"stale owner bit", "cq.go", "mlx5prm.OpOwn(mmio.LoadAcquire32(q.last(q.where(i)))), i, q.n)", "mlx5prm.OpOwn(mmio.LoadAcquire32(q.last(q.where(i)))), i&(q.n-1), q.n)"},
	{"completions not given back", "cq.go", "mmio.Store32(q.record, mlx5prm.Word(q.ci&mlx5prm.CIMask))\n", "_ = q.record\n"},
	{"no record of the arm", "cq.go", "mmio.Store32(c.arm, mlx5prm.Word(w))\n", "_ = c.arm\n"},
	{"another CQ armed", "cq.go", "mlx5prm.ArmRegister(w, c.num)", "mlx5prm.ArmRegister(w, c.num+1)"},
	{"no fence before the record of receives", "recvqueue.go", "mmio.StoreFence()\n\tmmio.Store32", "mmio.Store32"},
	{"no record of a post", "uar.go", postWord,
		"_ = record; mmio.StoreFence(); mmio.Store64(d.reg[d.turn&1], mlx5prm.SendRegister(c)); mmio.StoreFence()"},
	{"record behind a post", "uar.go", postWord,
		"mmio.StoreFence(); mmio.Store64(d.reg[d.turn&1], mlx5prm.SendRegister(c)); mmio.StoreFence(); mmio.Store32(record, count)"},
	{"no fence before the record of a post", "uar.go", postWord,
		"mmio.Store32(record, count); mmio.StoreFence(); mmio.Store64(d.reg[d.turn&1], mlx5prm.SendRegister(c)); mmio.StoreFence()"},
	{"no fence before a post", "uar.go", postWord,
		"mmio.OrderStores(); mmio.Store32(record, count); mmio.Store64(d.reg[d.turn&1], mlx5prm.SendRegister(c)); mmio.StoreFence()"},
	{"no fence behind a post", "uar.go", postWord,
		"mmio.OrderStores(); mmio.Store32(record, count); mmio.StoreFence(); mmio.Store64(d.reg[d.turn&1], mlx5prm.SendRegister(c))"},
	{"no record of a copied entry", "uar.go", postBlock,
		"_ = record; mmio.StoreFence(); mmio.CopyBlock(dst.block(0), v.block(off)); mmio.StoreFence()"},
	{"record behind a copied entry", "uar.go", postBlock,
		"mmio.StoreFence(); mmio.CopyBlock(dst.block(0), v.block(off)); mmio.StoreFence(); mmio.Store32(record, count)"},
	{"no fence before the record of a copied entry", "uar.go", postBlock,
		"mmio.Store32(record, count); mmio.StoreFence(); mmio.CopyBlock(dst.block(0), v.block(off)); mmio.StoreFence()"},
	{"no fence before a copied entry", "uar.go", postBlock,
		"mmio.OrderStores(); mmio.Store32(record, count); mmio.CopyBlock(dst.block(0), v.block(off)); mmio.StoreFence()"},
	{"no fence behind a copied entry", "uar.go", postBlock,
		"mmio.OrderStores(); mmio.Store32(record, count); mmio.StoreFence(); mmio.CopyBlock(dst.block(0), v.block(off))"},
	{"copy of another entry", "uar.go", postBlock,
		"mmio.PostBlock(record, count, dst.block(0), dst.block(0))"},
	{"no fence before the record of a long entry", "uar.go", "mmio.OrderStores()\n\tmmio.Store32", "mmio.Store32"},
	{"no fence before a long entry", "uar.go", "mmio.Store32(record, count)\n\tmmio.StoreFence()", "mmio.Store32(record, count)"},
	{"copy of another block", "uar.go", "v.block(off+at))", "v.block(off))"},
	{"copy without its last block", "uar.go", "at < n; at += mlx5prm.SendBB", "at == 0 || at+mlx5prm.SendBB < n; at += mlx5prm.SendBB"},
	{"no fence behind a long entry", "uar.go", "v.block(off+at))\n\t}\n\tmmio.StoreFence()", "v.block(off+at))\n\t}"},
	{"no fence before the arm", "cq.go", "mlx5prm.Word(w))\n\tmmio.StoreFence()", "mlx5prm.Word(w))"},
	{"no fence before what a completion says", "cq.go", "mmio.LoadFence()\n\treturn true", "return true"},
	{"no fence before completions are given back", "cq.go", "mmio.LoadFence()\n\tmmio.Store32", "mmio.Store32"},
	{"doorbell in another page", "qp.go", "BFRegIndex: q.sq.bell.page", "BFRegIndex: q.sq.bell.page - 1"},
	{"attribute missing from a mask", "ece.go", "ModifyQP(q.h, a, mask)", "ModifyQP(q.h, a, mask&^driver.QPMinRNRTimer)"},
	{"queues in the wrong order", "qp.go", "viewOf(q.mem, recvBytes, sendBytes)", "viewOf(q.mem, 0, sendBytes)"},
}

// TestMutants builds the driver with one fault after the other, on a package mmio that
// tells of every store and fence, and sees that the model or the trace catches each. That
// takes minutes, so it is done on demand. TestTraceAsLibmlx5 has the driver as it is.
func TestMutants(t *testing.T) {
	if os.Getenv("PURERDMA_MUTANTS") == "" {
		t.Skip("set PURERDMA_MUTANTS=1 to plant faults, which takes minutes")
	}
	for _, m := range mutants {
		t.Run(m.name, func(t *testing.T) {
			out, err := runTraced(t, m.plant(t), filepath.Join(t.TempDir(), "traces"))
			if err == nil {
				t.Errorf("nothing was caught\n%s", out)
			} else {
				t.Logf("%s", out)
			}
		})
	}
}

// plant is the file with the fault, in the place of that without.
func (m mutant) plant(t *testing.T) map[string]string {
	t.Helper()
	file := filepath.Join("../mlx5", m.file)
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(string(text), m.old); n != 1 {
		t.Fatalf("%q is %d times in %s", m.old, n, file)
	}
	with := filepath.Join(t.TempDir(), m.file)
	if err := os.WriteFile(with, []byte(strings.Replace(string(text), m.old, m.planted, 1)), 0o644); err != nil {
		t.Fatal(err)
	}
	return map[string]string{file: with}
}

// TestMutantsTrapped has the faults in a program that is otherwise as it is, whose doorbells
// are caught from outside. There no fence is seen, so one that is missing is not looked for.
// TestSupervisedScenes has the program without a fault.
func TestMutantsTrapped(t *testing.T) {
	if os.Getenv("PURERDMA_MUTANTS") == "" {
		t.Skip("set PURERDMA_MUTANTS=1 to plant faults, which takes minutes")
	}
	newSupervised(t, trapped)
	for _, m := range mutants {
		if strings.HasPrefix(m.name, "no fence") {
			continue
		}
		t.Run(m.name, func(t *testing.T) {
			program := buildTest(t, m.plant(t))
			ctx, cancel := stdcontext.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			cmd := exec.CommandContext(ctx, program, "-test.run", "^TestSupervisedScenes$", "-test.v")
			cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
			cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
			out, err := cmd.CombinedOutput()
			switch {
			case err == nil:
				t.Errorf("nothing was caught\n%s", out)
			case ctx.Err() != nil:
				t.Logf("the program does not end\n%s", out)
			default:
				t.Logf("%s", out)
			}
		})
	}
}

// runTraced runs what watches the driver's stores and fences, with other files in the place
// of some. What the driver does in the scenes of the script goes to a file.
func runTraced(t *testing.T, replace map[string]string, traces string) ([]byte, error) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), buildTraced(t, replace), "-test.run", "^(TestTraced|TestScript)$", "-test.failfast", "-test.timeout", patience.String())
	cmd.Env = append(os.Environ(), scriptTraces+"="+traces)
	return cmd.CombinedOutput()
}

// buildTraced builds the tests of this package on the package mmio of testdata/traced, and
// is the program. Other files take the place of some.
func buildTraced(t *testing.T, replace map[string]string) string {
	t.Helper()
	if runtime.GOARCH != "amd64" {
		t.Skip("the traced package mmio is that of amd64")
	}
	all := map[string]string{
		"../../../internal/mmio/stores_asm.go":  "testdata/traced/mmio.go",
		"../../../internal/mmio/mmio_amd64.s":   "", // left out
		"../../../internal/mmio/order_amd64.go": "",
		"traced_linux_test.go":                  "testdata/traced/traced_linux_test.go",
	}
	maps.Copy(all, replace)
	return buildTest(t, all)
}

// buildTest builds the tests of this package with other files in the place of some, and is
// the program.
func buildTest(t *testing.T, replace map[string]string) string {
	t.Helper()
	tool, err := exec.LookPath("go")
	if err != nil {
		t.Skip(err)
	}
	absolute := map[string]string{}
	for file, by := range replace {
		for _, name := range []*string{&file, &by} {
			if *name == "" {
				continue
			}
			if *name, err = filepath.Abs(*name); err != nil {
				t.Fatal(err)
			}
		}
		absolute[file] = by
	}
	list, err := json.Marshal(map[string]any{"Replace": absolute})
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	overlay, test := filepath.Join(dir, "overlay.json"), filepath.Join(dir, "traced.test")
	if err := os.WriteFile(overlay, list, 0o644); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.CommandContext(t.Context(), tool, "test", "-c", "-vet=off", "-overlay", overlay, "-o", test, ".").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return test
}
