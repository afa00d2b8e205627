package notify

import (
	"errors"
	"fmt"
	"os"
	"testing"

	"golang.org/x/sys/unix"
)

// underFilter says that this program is the one that a test has started.
const underFilter = "NOTIFY_TEST_PROGRAM"

// Options of prctl that are none of the kernel's, and what becomes of a call with a
// second argument.
const ours, others = 0x1001, 0x1002

var rules = []Rule{
	{Call: unix.SYS_PRCTL, Args: []Arg{Is(0, ours), Is(1, 4)}, Action: Allow},
	{Call: unix.SYS_PRCTL, Args: []Arg{Is(0, ours), Is(1, 5)}, Action: Refuse(unix.EDOM)},
	{Call: unix.SYS_PRCTL, Args: []Arg{Is(0, ours), Has(1, 8|2)}, Action: Refuse(unix.ERANGE)},
	{Call: unix.SYS_PRCTL, Args: []Arg{Is(0, ours), {Index: 1, Mask: 0xf0, Value: 0x10, Not: true}}, Action: Answer},
}

// answer is what becomes of calls that the rules leave to it.
func answer(t *testing.T, given *os.File) func(*Call) Reply {
	return func(c *Call) Reply {
		switch c.Args[1] {
		case 0:
			return Value(42)
		case 1:
			return Fails(unix.EXDEV)
		case 2:
			return GoOn
		}
		n, err := c.Give(int(given.Fd()), unix.O_CLOEXEC)
		if err != nil {
			t.Error(err)
		}
		return Value(int64(n))
	}
}

// inner does the calls in the program.
func inner(t *testing.T) {
	for _, c := range []struct {
		option, second uintptr
		want           int
		err            error
	}{
		{ours, 0, 42, nil},
		{ours, 1, -1, unix.EXDEV},
		{ours, 2, -1, unix.EINVAL},
		{ours, 4, -1, unix.EINVAL},
		{ours, 5, -1, unix.EDOM},
		{ours, 8 | 2, -1, unix.ERANGE},
		{ours, 8 | 2 | 1, -1, unix.ERANGE},
		{ours, 0x10, -1, unix.EINVAL}, // no rule fits
		{others, 5, -1, unix.EINVAL},
	} {
		if got, err := unix.PrctlRetInt(int(c.option), c.second, 0, 0, 0); got != c.want && err == nil || !errors.Is(err, c.err) {
			t.Errorf("prctl(%#x, %d) is %d, %v, want %d, %v", c.option, c.second, got, err, c.want, c.err)
		}
	}
	fd, err := unix.PrctlRetInt(ours, 3, 0, 0, 0)
	if err != nil {
		t.Fatal(err)
	}
	b := make([]byte, 16)
	if n, err := unix.Pread(fd, b, 0); string(b[:max(n, 0)]) != "given" {
		t.Errorf("the descriptor that was given has %q, %v", b, err)
	}
	if flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); flags&unix.FD_CLOEXEC == 0 {
		t.Errorf("flags of the descriptor are %#x, %v", flags, err)
	}
	if err := unix.Close(fd); err != nil {
		t.Error(err)
	}
}

func TestRun(t *testing.T) {
	if os.Getenv(underFilter) != "" {
		inner(t)
		return
	}
	given, err := os.CreateTemp(t.TempDir(), "")
	if err != nil {
		t.Fatal(err)
	}
	defer given.Close()
	if _, err := given.WriteString("given"); err != nil {
		t.Fatal(err)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	started := false
	err = Run(rules, answer(t, given), func() error {
		started = true
		p, err := os.StartProcess(self, []string{self, "-test.run=^TestRun$"}, &os.ProcAttr{
			Env: append(os.Environ(), underFilter+"=1"), Files: []*os.File{nil, os.Stderr, os.Stderr},
		})
		if err != nil {
			return err
		}
		s, err := p.Wait()
		if err == nil && !s.Success() {
			err = fmt.Errorf("the program ended with %v", s)
		}
		return err
	})
	if !started {
		t.Skip(err)
	}
	if err != nil {
		t.Error(err)
	}
}

// TestError is what start says.
func TestError(t *testing.T) {
	want, started := errors.New("none"), false
	err := Run(rules, func(*Call) Reply { return GoOn }, func() error {
		started = true
		return want
	})
	if !started {
		t.Skip(err)
	}
	if !errors.Is(err, want) {
		t.Errorf("the error is %v, want %v", err, want)
	}
}
