package link

import (
	"errors"
	"net/netip"
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/purerdma/purerdma/ibverbs/driver"
)

// A process without descriptors is told so, and keeps nothing. Flows of a link that
// is open then leave from port 4791.
func TestUDPWithoutDescriptors(t *testing.T) {
	u, err := ListenUDP(UDPConfig{Addr: netip.MustParseAddr("127.0.0.171"), Sources: 4})
	if err != nil {
		t.Fatal(err)
	}
	defer u.Close()
	var files []*os.File
	defer func() {
		for _, f := range files {
			f.Close()
		}
	}()
	var before syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &before); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &before); err != nil {
			t.Error(err)
		}
	}()
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &syscall.Rlimit{Cur: 256, Max: before.Max}); err != nil {
		t.Fatal(err)
	}
	for {
		f, err := os.Open(os.DevNull)
		if err != nil {
			break
		}
		files = append(files, f)
	}
	_, err = ListenUDP(UDPConfig{Addr: netip.MustParseAddr("127.0.0.172")})
	var e *driver.Error
	if !errors.As(err, &e) || !errors.Is(err, syscall.EMFILE) || !strings.Contains(e.Hint, "ulimit") {
		t.Errorf("error %v", err)
	}
	if from := u.Source(1); from != u.LocalAddr() {
		t.Errorf("flow leaves from %v", from)
	}
}
