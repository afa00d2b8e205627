package drivertest

import (
	"encoding/hex"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/purerdma/purerdma/gpu"
)

// childVariable tells a child what it is given.
const childVariable = "GPU_TEST_SHARE"

// Memory of one process is another's, by descriptor and by legacy handle. The
// other is this program again.
func (s suite) sharing(t *testing.T) {
	c := s.open(t)
	size := 4 * get(c.Granularity())(t)
	t.Run("descriptor", func(t *testing.T) {
		a := get(c.Create(size, false))(t)
		at := get(c.Reserve(size))(t)
		must(t, c.Map(at, size, a))
		fd := get(c.Export(a))(t)
		file := os.NewFile(uintptr(fd), "memory")
		share(t, c, at, file, fmt.Sprintf("descriptor %d %d", size, c.Device().Index))
		must(t, file.Close())
	})
	t.Run("legacy handle", func(t *testing.T) {
		p := get(c.Alloc(size))(t)
		h := get(c.IPCHandle(p))(t)
		if q, err := c.OpenIPC(h); err == nil {
			t.Errorf("opened at %#x by who exported it", uint64(q))
		}
		share(t, c, p, nil, fmt.Sprintf("legacy %s %d", hex.EncodeToString(h[:]), c.Device().Index))
		must(t, c.Free(p))
	})
}

// share has a child turn pattern 1 into pattern 2.
func share(t *testing.T, c gpu.Context, p gpu.Ptr, file *os.File, what string) {
	t.Helper()
	const n = 100000
	must(t, c.WriteTo(p, pattern(n, 1)))
	root, _, _ := strings.Cut(t.Name(), "/")
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+root+"$", "-test.v")
	cmd.Env = append(os.Environ(), childVariable+"="+what)
	if file != nil {
		cmd.ExtraFiles = []*os.File{file}
	}
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("child: %v\n%s", err, out)
	}
	holds(t, c, p, pattern(n, 2))
}

func (s suite) child(t *testing.T, what string) {
	var kind, arg string
	var device int
	if _, err := fmt.Sscan(what, &kind, &arg, &device); err != nil {
		t.Fatal(err)
	}
	c := get(s.Driver.Open(device))(t)
	defer func() { must(t, c.Close()) }()
	const n = 100000
	var p gpu.Ptr
	if kind == "descriptor" {
		size := get(strconv.Atoi(arg))(t)
		const inherited = 3
		a := get(c.Import(inherited))(t)
		must(t, unix.Close(inherited))
		p = get(c.Reserve(size))(t)
		must(t, c.Map(p, size, a))
	} else {
		var h gpu.IPCHandle
		copy(h[:], get(hex.DecodeString(arg))(t))
		p = get(c.OpenIPC(h))(t)
		defer func() { must(t, c.CloseIPC(p)) }()
	}
	holds(t, c, p, pattern(n, 1))
	must(t, c.WriteTo(p, pattern(n, 2)))
}
