package drivertest

import (
	"syscall"
	"testing"

	"github.com/purerdma/purerdma/ibverbs/driver"
	"github.com/purerdma/purerdma/internal/offheap"
)

// testRereg changes the memory and the rights of a registration: what was allowed
// before is not afterwards, a refusal changes nothing, the memory is given back.
func testRereg(t *testing.T, cfg Config) {
	a, b := connect(t, cfg, setup{})
	old, err := b.pd.RegMR(b.mem, b.mem.Addr(), allAccess)
	must(t, "register memory", err)
	closed := false
	defer func() {
		if !closed {
			check(t, "close MR", old.Close())
		}
	}()
	r, can := old.(driver.Reregisterer)
	if err := b.Context.Probe(driver.FeatureReregMR); err != nil {
		if can {
			_, refused := r.Rereg(driver.MRChange{SetAccess: true, Access: driver.LocalWrite})
			wantErr(t, "re-registration without the feature", refused, driver.ErrNotSupported)
		}
		t.Skip(err)
	}
	if !can {
		t.Fatal("the probe says that MRs can be re-registered, and they cannot")
	}
	refused := map[string]driver.MRChange{
		"no change": {}, "no memory": {SetMemory: true, Span: offheap.Span{}}, "remote write without local write": {SetAccess: true, Access: driver.RemoteWrite},
	}
	if a.Context != b.Context {
		refused["a PD of another device"] = driver.MRChange{PD: a.pd}
	}
	for what, c := range refused {
		_, refused := r.Rereg(c)
		wantErr(t, what, refused, syscall.EINVAL)
	}

	at := func(m driver.MR, mem driver.Span) driver.Remote {
		_, rkey := m.Keys()
		return driver.Remote{Addr: mem.Addr(), RKey: rkey}
	}
	write := func(id uint64, to driver.Remote) {
		a.postSend(driver.SendWR{ID: id, Op: driver.OpWrite, Flags: driver.Signaled, SGL: []driver.SGE{a.sge(0, 8)}, Remote: to})
	}
	copy(a.bytes(0, 8), "the same")
	write(1, at(old, b.mem))
	a.one(1, driver.Success)

	other := alloc(t, 8192)
	now, err := r.Rereg(driver.MRChange{SetMemory: true, Span: other, IOVA: other.Addr()})
	must(t, "re-register memory", err)
	closed = true // old is now
	mr := &closeOnce{MR: now}
	t.Cleanup(func() { check(t, "close MR", mr.Close()) })
	copy(a.bytes(0, 8), "anywhere")
	write(2, at(mr, other))
	a.one(2, driver.Success)
	if got := string(other.Bytes()[:8]); got != "anywhere" {
		t.Errorf("the new memory has %q", got)
	}
	check(t, "give back memory", other.Release()) // the registration holds it

	pd, err := b.Context.AllocPD()
	must(t, "make a PD", err)
	t.Cleanup(func() { check(t, "close PD", pd.Close()) })
	now, err = now.(driver.Reregisterer).Rereg(driver.MRChange{PD: pd})
	must(t, "change the PD", err)
	mr.MR = now
	wantErr(t, "close a PD with an MR", pd.Close(), driver.ErrBusy)
	now, err = now.(driver.Reregisterer).Rereg(driver.MRChange{PD: b.pd, SetMemory: true, Span: b.mem, IOVA: b.mem.Addr()})
	must(t, "change the PD back, and the memory", err)
	mr.MR = now
	now, err = now.(driver.Reregisterer).Rereg(driver.MRChange{SetAccess: true, Access: driver.LocalWrite | driver.RemoteRead})
	must(t, "take rights away", err)
	mr.MR = now
	fill(b.mem.Bytes(), 0xee)
	a.postSend(driver.SendWR{ID: 1, Op: driver.OpWrite, SGL: []driver.SGE{a.sge(0, 8)}, Remote: at(mr, b.mem)}, follow)
	a.failed(t, driver.RemAccessErr)
	b.unchanged(t)
}
