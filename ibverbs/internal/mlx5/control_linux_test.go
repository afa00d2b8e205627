package mlx5

import (
	"context"
	"errors"
	"fmt"
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
	for name, errno := range map[string]error{"changed": nil, "refused": syscall.ENOMEM, "device lacks it": syscall.EOPNOTSUPP} {
		k := newFake()
		var told uapi.ReregMR
		rereg := k.Commands[uapi.CmdReregMR]
		k.Commands[uapi.CmdReregMR] = func(c *uverbstest.Call) error {
			copy(bytesOf(&told), c.In(uapi.AttrCoreIn))
			if errno != nil {
				return errno
			}
			return rereg(c)
		}
		r := newRig(t, k, 64, driver.QPConfig{Cap: small})
		one, two := pages(t), pages(t)
		old, err := r.pd.RegMR(one, one.Addr(), driver.LocalWrite)
		if err != nil {
			t.Fatal(err)
		}
		const access = driver.LocalWrite | driver.RemoteRead | driver.RelaxedOrdering
		now, err := old.(driver.Reregisterer).Rereg(driver.MRChange{PD: r.pd, SetMemory: true, Span: two, IOVA: two.Addr(), SetAccess: true, Access: access})
		if !errors.Is(err, errno) || (now == nil) != (errno != nil) {
			t.Errorf("%s: %v, %v", name, now, err)
		}
		if told.Flags != uapi.ReregPD|uapi.ReregTranslation|uapi.ReregAccess || told.Start != two.Addr() || told.Length != 4096 ||
			told.HCAVA != two.Addr() || told.AccessFlags != uint32(access) {
			t.Errorf("%s: the kernel was told %+v", name, told)
		}
		held, free := one, two
		if now != nil {
			held, free = two, one
			if m := now.(*MR); m.iova != two.Addr() || m.length != 4096 || m.access != access {
				t.Errorf("%s: %+v", name, m)
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
		if err := errors.Join(held.Release(), now.Close()); err != nil {
			t.Error(err)
		}
	}
}

func TestRefusedRereg(t *testing.T) {
	r := newRig(t, newFake(), 64, driver.QPConfig{Cap: small})
	other := newRig(t, newFake(), 64, driver.QPConfig{Cap: small})
	m, w := r.register(r.pd, bindable), r.window(r.pd)
	for name, c := range map[string]driver.MRChange{
		"PD of another device": {PD: other.pd},
		"rights":               {SetAccess: true, Access: driver.RemoteWrite},
		"no memory":            {SetMemory: true},
	} {
		if _, err := m.Rereg(c); !errors.Is(err, syscall.EINVAL) {
			t.Errorf("%s: %v", name, err)
		}
	}
	b := binds(w, m, 1)
	r.post(driver.SendWR{Op: driver.OpBindMW, Bind: b})
	if _, err := m.Rereg(driver.MRChange{SetAccess: true}); !errors.Is(err, driver.ErrBusy) {
		t.Errorf("with a window bound to it: %v", err)
	}
	r.post(driver.SendWR{Op: driver.OpLocalInv, Imm: b.RKey})
}

// TestAccessFlags reach the kernel as they are, relaxed ordering too.
func TestAccessFlags(t *testing.T) {
	k := newFake()
	var told driver.Access
	reg := k.Commands[uapi.CmdRegMR]
	k.Commands[uapi.CmdRegMR] = func(c *uverbstest.Call) error {
		var req uapi.RegMR
		copy(bytesOf(&req), c.In(uapi.AttrCoreIn))
		told = driver.Access(req.AccessFlags)
		return reg(c)
	}
	r := newRig(t, k, 64, driver.QPConfig{Cap: small})
	for _, a := range []driver.Access{0, driver.LocalWrite, driver.RemoteRead, bindable | driver.RelaxedOrdering,
		driver.LocalWrite | driver.RemoteWrite | driver.RemoteRead | driver.RemoteAtomic | driver.RelaxedOrdering} {
		if r.register(r.pd, a); told != a {
			t.Errorf("the kernel was told %#x, want %#x", told, a)
		}
	}
}

// TestModifyChecks changes one field at a time to what does not fit it.
func TestModifyChecks(t *testing.T) {
	k := newFake()
	calls := 0
	k.Commands[uapi.CmdModifyQP] = func(*uverbstest.Call) error { calls++; return nil }
	r := newRig(t, k, 64, driver.QPConfig{Cap: small})
	good := driver.QPAttr{State: driver.StateRTR, CurState: driver.StateInit, PathMTU: driver.MTU2048, QKey: 5, RQPSN: 1<<24 - 1, SQPSN: 1<<24 - 1,
		DestQPN: 1<<24 - 1, Access: driver.LocalWrite | driver.RemoteWrite, AH: farAway, PKeyIndex: 3, MaxRdAtomic: 16, MaxDestRdAtomic: 16,
		MinRNRTimer: 31, Port: 1, Timeout: 31, RetryCnt: 7, RNRRetry: 7}
	const all = driver.QPStateMask | driver.QPCurState | driver.QPEnSQDAsyncNotify | driver.QPAccessFlags | driver.QPPKeyIndex | driver.QPPort |
		driver.QPQKey | driver.QPAV | driver.QPPathMTU | driver.QPTimeout | driver.QPRetryCnt | driver.QPRNRRetry | driver.QPRQPSN |
		driver.QPMaxQPRdAtomic | driver.QPMinRNRTimer | driver.QPSQPSN | driver.QPMaxDestRdAtomic | driver.QPDestQPN
	calls = 0
	if err := r.qp.Modify(&good, all); err != nil || calls != 1 {
		t.Fatalf("all fields at their limits: %v", err)
	}
	for name, c := range map[string]struct {
		bit    driver.QPMask
		change func(*driver.QPAttr)
	}{
		"state":            {driver.QPStateMask, func(a *driver.QPAttr) { a.State = 7 }},
		"current state":    {driver.QPCurState, func(a *driver.QPAttr) { a.CurState = 7 }},
		"MTU 0":            {driver.QPPathMTU, func(a *driver.QPAttr) { a.PathMTU = 0 }},
		"MTU 6":            {driver.QPPathMTU, func(a *driver.QPAttr) { a.PathMTU = 6 }},
		"MTU of the port":  {driver.QPPathMTU, func(a *driver.QPAttr) { a.PathMTU = driver.MTU4096 }},
		"receive PSN":      {driver.QPRQPSN, func(a *driver.QPAttr) { a.RQPSN++ }},
		"send PSN":         {driver.QPSQPSN, func(a *driver.QPAttr) { a.SQPSN++ }},
		"peer":             {driver.QPDestQPN, func(a *driver.QPAttr) { a.DestQPN++ }},
		"rights":           {driver.QPAccessFlags, func(a *driver.QPAttr) { a.Access |= driver.RelaxedOrdering }},
		"P_Key":            {driver.QPPKeyIndex, func(a *driver.QPAttr) { a.PKeyIndex++ }},
		"reads to start":   {driver.QPMaxQPRdAtomic, func(a *driver.QPAttr) { a.MaxRdAtomic++ }},
		"reads to take":    {driver.QPMaxDestRdAtomic, func(a *driver.QPAttr) { a.MaxDestRdAtomic++ }},
		"RNR timer":        {driver.QPMinRNRTimer, func(a *driver.QPAttr) { a.MinRNRTimer++ }},
		"port 0":           {driver.QPPort, func(a *driver.QPAttr) { a.Port = 0 }},
		"port 2":           {driver.QPPort, func(a *driver.QPAttr) { a.Port = 2 }},
		"timeout":          {driver.QPTimeout, func(a *driver.QPAttr) { a.Timeout++ }},
		"retries":          {driver.QPRetryCnt, func(a *driver.QPAttr) { a.RetryCnt++ }},
		"RNR retries":      {driver.QPRNRRetry, func(a *driver.QPAttr) { a.RNRRetry++ }},
		"port of the path": {driver.QPAV, func(a *driver.QPAttr) { a.AH.Port = 2 }},
		"flow label":       {driver.QPAV, func(a *driver.QPAttr) { a.AH.FlowLabel = 1 << 20 }},
		"GID index":        {driver.QPAV, func(a *driver.QPAttr) { a.AH.SGIDIndex = 16 }},
		"service level":    {driver.QPAV, func(a *driver.QPAttr) { a.AH.SL = 16 }},
		"static rate":      {driver.QPAV, func(a *driver.QPAttr) { a.AH.StaticRate = 25 }},
		"path bits":        {driver.QPAV, func(a *driver.QPAttr) { a.AH.SrcPathBits = 128 }},
	} {
		a := good
		c.change(&a)
		calls = 0
		err := r.qp.Modify(&a, all)
		var e *driver.Error
		if !errors.Is(err, syscall.EINVAL) || !errors.As(err, &e) || e.Hint == "" || calls != 0 {
			t.Errorf("%s: %v, %d calls", name, err, calls)
		}
		if err := r.qp.Modify(&a, all&^c.bit); err != nil || calls != 1 {
			t.Errorf("%s, which does not count: %v", name, err)
		}
	}
	for _, bit := range []driver.QPMask{driver.QPAltPath, driver.QPPathMigState, driver.QPCapMask, driver.QPRateLimit} {
		if err := r.qp.Modify(&good, all|bit); !errors.Is(err, syscall.EINVAL) {
			t.Errorf("%#x: %v", uint32(bit), err)
		}
	}
}

func TestModifyErrnos(t *testing.T) {
	k := newFake()
	r := newRig(t, k, 64, driver.QPConfig{Cap: small})
	for errno, a := range map[error]driver.QPAttr{syscall.ETIMEDOUT: {AH: farAway}, syscall.ENETUNREACH: {AH: farAway}, syscall.EPERM: {QKey: 1 << 31, AH: farAway}} {
		k.Commands[uapi.CmdModifyQP] = func(*uverbstest.Call) error { return errno }
		err := r.qp.Modify(&a, driver.QPAV|driver.QPQKey)
		var e *driver.Error
		if !errors.Is(err, errno) || !errors.As(err, &e) || e.Hint == "" {
			t.Errorf("%v: %v", errno, err)
		}
	}
}

// TestECE asks for options with the next change of the QP and once.
func TestECE(t *testing.T) {
	k := newFake()
	k.resp.CompMask = uapi.MLX5RespMaskECE
	create := k.Methods[uverbstest.QPCreate]
	k.Methods[uverbstest.QPCreate] = func(c *uverbstest.Call) error {
		resp := uapi.MLX5CreateQPResp{ECEOptions: 0x10000007}
		c.SetOut(uapi.AttrUHWOut, bytesOf(&resp))
		return create(c)
	}
	var told []uapi.MLX5ModifyQP
	var base uapi.ExModifyQP
	k.Commands[uapi.CmdModifyQP|uapi.CmdFlagExtended] = func(c *uverbstest.Call) error {
		var req uapi.MLX5ModifyQP
		copy(bytesOf(&req), c.In(uapi.AttrUHWIn))
		copy(bytesOf(&base), c.In(uapi.AttrCoreIn))
		told = append(told, req)
		c.SetOut(uapi.AttrCoreOut, []byte{0, 0, 0, 0, 8, 0, 0, 0})
		resp := uapi.MLX5ModifyQPResp{ResponseLength: 12, ECEOptions: 3}
		c.SetOut(uapi.AttrUHWOut, bytesOf(&resp))
		return nil
	}
	r := newRig(t, k, 64, driver.QPConfig{Cap: small})
	if k.qp.ECEOptions != eceVersion1 {
		t.Errorf("the kernel was asked for %#x", k.qp.ECEOptions)
	}
	if e, err := r.qp.QueryECE(); err != nil || e != (driver.ECE{Vendor: 0x15b3, Options: 0x10000007}) {
		t.Errorf("%+v, %v", e, err)
	}
	for name, e := range map[string]driver.ECE{"mask": {Vendor: vendor, CompMask: 1}, "vendor": {Vendor: 1, Options: 1}, "options of none": {Options: 1}} {
		if err := r.qp.SetECE(e); !errors.Is(err, syscall.EINVAL) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := r.qp.SetECE(driver.ECE{Vendor: vendor, Options: 0x10000003}); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := r.qp.Modify(&driver.QPAttr{State: driver.StateRTS, QKey: 9}, driver.QPStateMask|driver.QPQKey); err != nil {
			t.Fatal(err)
		}
	}
	if len(told) != 1 || told[0] != (uapi.MLX5ModifyQP{ECEOptions: 0x10000003}) || base.Base.QKey != 9 || base.Base.QPState != uint8(driver.StateRTS) {
		t.Errorf("the kernel was told %+v, %+v", told, base)
	}
	if e, err := r.qp.QueryECE(); err != nil || e.Options != 3 {
		t.Errorf("%+v, %v", e, err)
	}
	old := newRig(t, newFake(), 64, driver.QPConfig{Cap: small})
	_, err := old.qp.QueryECE()
	for _, err := range []error{err, old.qp.SetECE(driver.ECE{}), old.c.Probe(driver.FeatureECE)} {
		var not *driver.NotSupportedError
		if !errors.As(err, &not) || not.By != driver.LacksDevice || not.Feature != driver.FeatureECE {
			t.Error(err)
		}
	}
	if old.k.qp.ECEOptions != 0 {
		t.Errorf("a device without was asked for %#x", old.k.qp.ECEOptions)
	}
}

// TestEventsReachTheirObjects has events of each kind of object.
func TestEventsReachTheirObjects(t *testing.T) {
	for _, c := range []struct {
		event     driver.EventType
		cookie    uint64
		qpFails   bool
		cqOverrun bool
	}{
		{driver.EventCQErr, 5, false, true},
		{driver.EventQPFatal, 6, true, false},
		{driver.EventQPReqErr, 6, true, false},
		{driver.EventQPAccessErr, 6, true, false},
		{driver.EventCommEst, 6, false, false},
		{driver.EventQPLastWQEReached, 6, false, false},
		{driver.EventQPFatal, 7, false, false},
		{driver.EventSRQLimitReached, 6, false, false},
		{driver.EventPortErr, 1, false, false},
	} {
		t.Run(fmt.Sprintf("%v/%d", c.event, c.cookie), func(t *testing.T) {
			k := newFake()
			r := newRig(t, k, 64, driver.QPConfig{Cap: small, Cookie: 6})
			record := order.AppendUint64(nil, c.cookie)
			record = order.AppendUint32(record, uint32(c.event))
			if err := k.Post(order.AppendUint32(record, 0)); err != nil {
				t.Fatal(err)
			}
			e, err := r.c.NextEvent(context.Background())
			if err != nil || e.Type != c.event {
				t.Fatal(e, err)
			}
			if failed := driver.QPState(r.qp.state.Load()) == driver.StateErr; failed != c.qpFails {
				t.Errorf("the QP failed: %v", failed)
			}
			if _, err := r.cq.Poll(make([]driver.WC, 1)); (err == driver.ErrCQOverrun) != c.cqOverrun {
				t.Errorf("the CQ: %v", err)
			}
		})
	}
}
