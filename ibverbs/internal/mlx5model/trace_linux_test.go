package mlx5model

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// meant are the lines of one trace that the other does not have, and how often: "-" are
// libmlx5's, "+" our driver's. Each group says why.
var meant = map[string]int{
	// The driver asks for no DEVX and no static doorbell registers. libmlx5 asks for DEVX,
	// then for less and less, as older kernels want, then for no DEVX.
	"+ GET_CONTEXT attribute 0x1000 flags 0x1: 32 bytes: 00000000 00000000 00000000 00000000 01000000 00000000 03000000 00000000": 1,
	"- GET_CONTEXT": 3,
	"- GET_CONTEXT attribute 0x0 flags 0x1: room for 4 bytes":                                                                     3,
	"- GET_CONTEXT attribute 0x1 flags 0x1: room for 8 bytes":                                                                     3,
	"- GET_CONTEXT attribute 0x1000 flags 0x1: 16 bytes: 10000000 04000000 01000000 00000000":                                     1,
	"- GET_CONTEXT attribute 0x1000 flags 0x1: 24 bytes: 10000000 04000000 01000000 00000000 01000000 00000000":                   1,
	"- GET_CONTEXT attribute 0x1000 flags 0x1: 32 bytes: 10000000 04000000 00000000 00000000 01000000 00000000 03000000 00000000": 1,
	"- GET_CONTEXT attribute 0x1000 flags 0x1: 32 bytes: 10000000 04000000 01000000 00000000 01000000 00000000 03000000 00000000": 1,
	"- GET_CONTEXT attribute 0x1001 flags 0x1: room for 72 bytes":                                                                 3,
	// libmlx5 asks the firmware for what it can by DEVX; the driver has no DEVX.
	"- method 4096 of object 0x1000": 1,
	// The driver opens the file of asynchronous events before it asks for limits.
	"+ ASYNC_EVENT_ALLOC":                                1,
	"+ ASYNC_EVENT_ALLOC attribute 0x0 flags 0x1: given": 1,
	"- ASYNC_EVENT_ALLOC":                                1,
	"- ASYNC_EVENT_ALLOC attribute 0x0 flags 0x1: given": 1,
	// The driver has no use for what the driver's own part of the answer says of offloads.
	"- EX_QUERY_DEVICE attribute 0x1001 flags 0x1: room for 104 bytes": 1,
	// libmlx5 asks for the ports as it opens the device, the driver when a QP needs one.
	"+ QUERY_PORT": 2,
	"+ QUERY_PORT attribute 0x0 flags 0x1: 0x1":               2,
	"+ QUERY_PORT attribute 0x1 flags 0x1: room for 48 bytes": 2,
	"- QUERY_PORT": 1,
	"- QUERY_PORT attribute 0x0 flags 0x1: 0x1":               1,
	"- QUERY_PORT attribute 0x1 flags 0x1: room for 48 bytes": 1,
	// The driver names the file of events of a CQ as mandatory.
	"+ CQ_CREATE attribute 0x7 flags 0x1: given": 1,
	"- CQ_CREATE attribute 0x7 flags 0x0: given": 1,
	// The driver tries the method before the command, as rdma-core 64 does.
	"+ method 5 of object 0x7": 1,
	// The driver lets no data be scattered to completions (MLX5_QP_FLAG_SCATTER_CQE).
	"+ QP_CREATE attribute 0x1000 flags 0x1: 56 bytes: address address 20000000 08000000 05000000 00040000 00000000 page 0000000000000000 00000000 00000000": 1,
	"- QP_CREATE attribute 0x1000 flags 0x1: 56 bytes: address address 20000000 08000000 05000000 02040000 00000000 page 0000000000000000 00000000 00000000": 1,
	// The driver asks for all attributes: its query has no mask.
	"+ QUERY_QP attribute 0x0 flags 0x1: 16 bytes: response qp 0 ffff1f00": 1,
	"- QUERY_QP attribute 0x0 flags 0x1: 16 bytes: response qp 0 01000000": 1,
}

// TestTraceAsLibmlx5 compares what libmlx5 and our driver do for the same calls of verbs:
// the ioctls and their attributes, and the entries of the send queue, in order.
func TestTraceAsLibmlx5(t *testing.T) {
	l := newLab(t, false)
	if found, _ := filepath.Glob("/usr/lib/*/libibverbs.so.1.14.44.*"); len(found) == 0 {
		t.Skip("the table of differences is that of rdma-core 44")
	}
	program := filepath.Join(t.TempDir(), "script")
	if out, err := exec.CommandContext(t.Context(), "gcc", "-Wall", "-Werror", "-O1", "-o", program, "testdata/script/main.c", "-libverbs").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	theirs := l.m.recorded(func() { l.run(t, program) })
	m := New(Config{Fault: func(s string) { t.Error("model: " + s) }})
	ours := m.recorded(func() { ourScript(t, NewLocal(m)) })
	have := differences(theirs, ours)
	for s, n := range have {
		if meant[s] != n {
			t.Errorf("%d times, not %d: %s", n, meant[s], s)
		}
	}
	for s, n := range meant {
		if have[s] == 0 {
			t.Errorf("no longer, not %d times: %s", n, s)
		}
	}
	if t.Failed() {
		t.Logf("libmlx5:\n%s\n\nours:\n%s", strings.Join(theirs, "\n"), strings.Join(ours, "\n"))
	}
}

// recorded is what programs do while f runs.
func (m *Model) recorded(f func()) (lines []string) {
	record := func(to func(string)) {
		m.mu.Lock()
		defer m.mu.Unlock()
		m.config.Trace = to
	}
	record(func(s string) { lines = append(lines, s) })
	f()
	record(nil)
	return lines
}

// differences are the lines that are not of the longest common subsequence.
func differences(a, b []string) map[string]int {
	common := make([][]int, len(a)+1) // of what is behind two places
	for i := range common {
		common[i] = make([]int, len(b)+1)
	}
	for i := len(a) - 1; i >= 0; i-- {
		for j := len(b) - 1; j >= 0; j-- {
			common[i][j] = max(common[i+1][j], common[i][j+1])
			if a[i] == b[j] {
				common[i][j] = common[i+1][j+1] + 1
			}
		}
	}
	lines := map[string]int{}
	for len(a) > 0 || len(b) > 0 {
		i, j := len(common)-1-len(a), len(common[0])-1-len(b)
		switch {
		case len(a) > 0 && len(b) > 0 && a[0] == b[0]:
			a, b = a[1:], b[1:]
		case len(b) == 0 || len(a) > 0 && common[i+1][j] >= common[i][j+1]:
			lines["- "+a[0]]++
			a = a[1:]
		default:
			lines["+ "+b[0]]++
			b = b[1:]
		}
	}
	return lines
}
