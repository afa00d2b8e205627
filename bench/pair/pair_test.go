//go:build unix

package pair

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"

	"go.uber.org/goleak"
)

type orders struct{ Word string }

// TestMain is the second process too: it sends its orders back, until the socket ends.
func TestMain(m *testing.M) {
	if !Second() {
		goleak.VerifyTestMain(m)
		return
	}
	var o orders
	nc, err := Join(&o)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(3)
	}
	if o.Word == "fail" {
		os.Exit(4)
	}
	_, _ = io.WriteString(nc, o.Word+"\n")
	_, _ = io.Copy(io.Discard, nc)
	os.Exit(0)
}

func TestTwoProcesses(t *testing.T) {
	before := descriptors(t)
	var stderr strings.Builder
	nc, wait, err := Start(orders{"hello"}, &stderr)
	if err != nil {
		t.Fatal(err)
	}
	b := make([]byte, 6)
	if _, err := io.ReadFull(nc, b); err != nil || string(b) != "hello\n" {
		t.Errorf("%q, %v", b, err)
	}
	if err := errors.Join(nc.Close(), wait()); err != nil {
		t.Errorf("%v\n%s", err, stderr.String())
	}
	if after := descriptors(t); after != before {
		t.Errorf("%d descriptors, %d before", after, before)
	}
}

func TestSecondFails(t *testing.T) {
	nc, wait, err := Start(orders{"fail"}, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := nc.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		t.Errorf("%v, want the end of the stream", err)
	}
	_ = nc.Close()
	if err := wait(); err == nil || !strings.Contains(err.Error(), "exit status 4") {
		t.Error(err)
	}
}

func TestJoinElsewhere(t *testing.T) {
	if _, err := Join(&orders{}); !errors.Is(err, ErrNotPair) {
		t.Error(err)
	}
}

func descriptors(t *testing.T) int {
	t.Helper()
	list, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Skip("without /proc nobody can count descriptors")
	}
	return len(list)
}
