package rdmalink

import (
	"errors"
	"strings"
	"syscall"
	"testing"

	"github.com/purerdma/purerdma/ibverbs"
)

func TestBadInput(t *testing.T) {
	for what, err := range map[string]error{"no name": Add("", SoftRoCE, "eth0"), "no net device": Add("rxe0", SoftRoCE, ""), "mode": SetMode("private")} {
		var e *ibverbs.Error
		if !errors.Is(err, syscall.EINVAL) || !errors.As(err, &e) || e.Hint == "" {
			t.Errorf("%s: %v", what, err)
		}
	}
	if err := Delete("no such device"); err == nil || !strings.Contains(err.Error(), "no such device") {
		t.Errorf("%v", err)
	}
}

func TestExplain(t *testing.T) {
	for errno, word := range map[syscall.Errno]string{syscall.EPERM: "CAP_NET_ADMIN", syscall.EEXIST: "rdma link", syscall.EBUSY: "namespace",
		syscall.ENODEV: "net device", syscall.EINVAL: "modprobe rdma_rxe", syscall.EPROTONOSUPPORT: "modprobe ib_core"} {
		if err := explain("add", "rxe0", errno); !errors.Is(err, errno) || !strings.Contains(err.Error(), word) || !strings.Contains(err.Error(), "rxe0") {
			t.Errorf("%v", err)
		}
	}
	if explain("add", "rxe0", nil) != nil {
		t.Error("success is explained")
	}
}
