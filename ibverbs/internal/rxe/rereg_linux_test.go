package rxe

import (
	"errors"
	"syscall"
	"testing"

	"github.com/purerdma/purerdma/ibverbs/driver"
	"github.com/purerdma/purerdma/ibverbs/internal/uapi"
	"github.com/purerdma/purerdma/ibverbs/internal/uverbs/uverbstest"
	"github.com/purerdma/purerdma/internal/offheap"
)

func pages(t *testing.T) driver.Span {
	t.Helper()
	mem, err := offheap.Map(4096, offheap.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return mem
}

// A registration that is changed holds the new memory alone, one that could not be the old.
func TestRereg(t *testing.T) {
	for name, errno := range map[string]error{"changed": nil, "refused": syscall.ENOMEM, "device lacks it": syscall.EOPNOTSUPP, "kernel lacks it": syscall.EPROTONOSUPPORT} {
		k := newFakeRXE(t)
		if errno != nil {
			k.Commands[uapi.CmdReregMR] = func(*uverbstest.Call) error { return errno }
		}
		pd, err := k.open(nil).AllocPD()
		if err != nil {
			t.Fatal(err)
		}
		one, two := pages(t), pages(t)
		old, err := pd.RegMR(one, one.Addr(), driver.LocalWrite)
		if err != nil {
			t.Fatal(err)
		}
		now, err := old.(driver.Reregisterer).Rereg(driver.MRChange{
			PD: pd, SetMemory: true, Span: two, IOVA: two.Addr(), SetAccess: true, Access: driver.LocalWrite | driver.RemoteRead,
		})
		if !errors.Is(err, errno) || (now == nil) != (errno != nil) {
			t.Errorf("%s: %v, %v", name, now, err)
		}
		var not *driver.NotSupportedError
		if by := map[error]driver.Lacks{syscall.EOPNOTSUPP: driver.LacksDevice, syscall.EPROTONOSUPPORT: driver.LacksKernel}[errno]; by != 0 &&
			(!errors.As(err, &not) || not.By != by || not.Feature != driver.FeatureReregMR) {
			t.Errorf("%s: %v", name, err)
		}
		held, free := one, two
		if now != nil {
			held, free = two, one
			if l, _ := now.Keys(); l == 0 {
				t.Errorf("%s: no key", name)
			}
		} else {
			now = old
		}
		if err := free.Release(); err != nil || free.Retain() == nil {
			t.Errorf("%s: a reference to the memory was kept: %v", name, err)
		}
		if err := held.Release(); err != nil || held.Retain() != nil {
			t.Errorf("%s: the registration does not hold its memory: %v", name, err)
		}
		_ = held.Release()
		closeAll(t, now, pd)
	}
}

func TestModerate(t *testing.T) {
	k := newFakeRXE(t)
	var told []byte
	k.Commands[uapi.CmdModifyCQ|uapi.CmdFlagExtended] = func(c *uverbstest.Call) error {
		told = append([]byte(nil), c.In(uapi.AttrCoreIn)...)
		return nil
	}
	cq, err := k.open(nil).CreateCQ(driver.CQConfig{Depth: 4})
	if err != nil {
		t.Fatal(err)
	}
	defer closeAll(t, cq)
	if err := cq.Moderate(16, 100); err != nil || order.Uint32(told[4:]) != uapi.CQModerate || order.Uint16(told[8:]) != 16 || order.Uint16(told[10:]) != 100 {
		t.Errorf("%v, % x", err, told)
	}
	for _, bad := range [][2]int{{-1, 0}, {0, -1}, {1 << 16, 0}, {0, 1 << 16}} {
		if err := cq.Moderate(bad[0], bad[1]); err != syscall.EINVAL {
			t.Errorf("%v: %v", bad, err)
		}
	}
	for errno, by := range map[error]driver.Lacks{syscall.EOPNOTSUPP: driver.LacksDevice, syscall.EPROTONOSUPPORT: driver.LacksKernel} {
		k.Commands[uapi.CmdModifyCQ|uapi.CmdFlagExtended] = func(*uverbstest.Call) error { return errno }
		var not *driver.NotSupportedError
		if err := cq.Moderate(16, 100); !errors.As(err, &not) || not.By != by || !errors.Is(err, driver.ErrNotSupported) {
			t.Errorf("%v: %v", errno, err)
		}
	}
}
