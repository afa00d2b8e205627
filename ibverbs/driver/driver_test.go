package driver_test

import (
	"errors"
	"io/fs"
	"syscall"
	"testing"
	"unsafe"

	"github.com/purerdma/purerdma/ibverbs/driver"
)

// What the documentation says of sizes: slices of these are what posting and
// polling cost, and drivers lay SGE over their rings.
func TestSizes(t *testing.T) {
	for _, s := range []struct {
		name      string
		got, want uintptr
	}{
		{"SendWR", unsafe.Sizeof(driver.SendWR{}), 128},
		{"RecvWR", unsafe.Sizeof(driver.RecvWR{}), 32},
		{"WC", unsafe.Sizeof(driver.WC{}), 40},
		{"SGE", unsafe.Sizeof(driver.SGE{}), 16},
		{"SGE.Length", unsafe.Offsetof(driver.SGE{}.Length), 8},
		{"SGE.LKey", unsafe.Offsetof(driver.SGE{}.LKey), 12},
	} {
		if s.got != s.want {
			t.Errorf("%s is %d, want %d", s.name, s.got, s.want)
		}
	}
}

func TestErrorText(t *testing.T) {
	err := error(&driver.Error{Op: "modify QP to RTR", Device: "mlx5_0", Object: "QP 0x12", Peer: "QP 0x45 at fd00::2",
		Err: syscall.EINVAL, Hint: "say less"})
	const want = "modify QP to RTR on mlx5_0, QP 0x12, peer QP 0x45 at fd00::2: EINVAL, invalid argument (say less)"
	if err.Error() != want {
		t.Errorf("got  %s\nwant %s", err, want)
	}
	if got := (&driver.Error{Op: "open"}).Error(); got != "open" {
		t.Errorf("an error of an operation alone says %q", got)
	}
	if got := (&driver.Error{Op: "register", Err: errors.Join(syscall.ENOMEM, nil)}).Error(); got != "register: ENOMEM, cannot allocate memory" {
		t.Errorf("a joined errno says %q", got)
	}
}

func TestCauses(t *testing.T) {
	retry := &driver.Error{Op: "complete request", Err: &driver.CompletionError{Status: driver.RetryExcErr, VendorErr: 0x81}}
	missing := &driver.Error{Op: "probe", Err: &driver.NotSupportedError{Feature: driver.FeatureDMABuf, By: driver.LacksKernel,
		Since: "Linux 5.12", Err: syscall.EPROTONOSUPPORT}}
	for _, c := range []struct {
		err, cause error
		is         bool
	}{
		{retry, driver.RetryExcErr, true},
		{retry, driver.WRFlushErr, false},
		{missing, driver.ErrNotSupported, true},
		{missing, errors.ErrUnsupported, true},
		{missing, syscall.EPROTONOSUPPORT, true},
		{missing, syscall.EINVAL, false},
		{driver.ErrClosed, fs.ErrClosed, true},
		{driver.ErrQueueFull, syscall.ENOMEM, true},
		{driver.ErrBusy, syscall.EBUSY, true},
		{driver.ErrBadState, syscall.EINVAL, true},
		{driver.ErrNoDevice, syscall.ENODEV, true},
	} {
		if errors.Is(c.err, c.cause) != c.is {
			t.Errorf("errors.Is(%v, %v) is %v", c.err, c.cause, !c.is)
		}
	}
	if got, want := missing.Error(), "probe: DMA-BUF registration is not supported by this kernel, which has it since Linux 5.12"; got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

func TestNames(t *testing.T) {
	for _, n := range []struct{ got, want string }{
		{driver.RNRRetryExcErr.Error(), "IBV_WC_RNR_RETRY_EXC_ERR"},
		{driver.TMRndvIncomplete.Error(), "IBV_WC_TM_RNDV_INCOMPLETE"},
		{driver.Status(200).Error(), "IBV_WC status 200"},
		{driver.EventGIDChange.String(), "IBV_EVENT_GID_CHANGE"},
		{driver.EventWQFatal.String(), "IBV_EVENT_WQ_FATAL"},
		{driver.EventType(99).String(), "IBV_EVENT 99"},
		{driver.EventCQErr.Concerns(), "CQ"},
		{driver.EventQPLastWQEReached.Concerns(), "QP"},
		{driver.EventPortErr.Concerns(), "port"},
		{driver.EventDeviceFatal.Concerns(), "device"},
		{driver.StateSQE.String(), "SQE"},
		{driver.QPState(9).String(), "QPState(9)"},
		{driver.MTU4096.String(), "4096"},
		{driver.MTU(6).String(), "MTU(6)"},
		{driver.PortActive.String(), "ACTIVE"},
		{driver.LinkEthernet.String(), "Ethernet"},
		{driver.GID{10: 0xff, 11: 0xff, 12: 10, 15: 1}.String(), "::ffff:10.0.0.1"},
		{driver.GID{10: 0xff, 11: 0xff, 12: 10, 15: 1}.Addr().String(), "10.0.0.1"},
	} {
		if n.got != n.want {
			t.Errorf("got %q, want %q", n.got, n.want)
		}
	}
	if driver.MTU256.Bytes() != 256 || driver.MTU4096.Bytes() != 4096 || driver.MTU(0).Bytes() != 0 {
		t.Error("sizes of MTUs are wrong")
	}
}
