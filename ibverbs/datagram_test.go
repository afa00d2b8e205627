package ibverbs_test

import (
	"errors"
	"net/netip"
	"strings"
	"syscall"
	"testing"

	"github.com/purerdma/purerdma/ibverbs"
	"github.com/purerdma/purerdma/ibverbs/softroce"
	"github.com/purerdma/purerdma/mr"
)

// A request of UD that fails takes the send queue to SQE: Query tells it, posts are
// flushed, and Modify brings the QP back.
func TestSendQueueErrorAndBack(t *testing.T) {
	drv := softroce.New(softroce.Config{Addrs: []netip.Addr{netip.MustParseAddr("10.0.0.1")},
		Network: softroce.OnSim(softroce.NewSim(softroce.SimConfig{}))})
	dev := get(ibverbs.Open("soft0", ibverbs.WithDrivers(drv)))(t)
	defer func() { try(t, dev.Close()) }()
	pd, cq, buf := get(dev.AllocPD())(t), get(dev.CreateCQ(16, ibverbs.WithEvents()))(t), get(mr.Alloc(4096))(t)
	defer func() { try(t, buf.Close()) }()
	mem := get(pd.RegMR(buf, ibverbs.LocalWrite))(t)
	q := get(pd.CreateQP(ibverbs.QPConfig{Type: ibverbs.UD, SendCQ: cq, RecvCQ: cq, Cap: ibverbs.QPCap{SendWR: 4, RecvWR: 4, SendSGE: 1, RecvSGE: 1}}))(t)
	try(t, q.Modify(&ibverbs.QPAttr{State: ibverbs.StateInit, Port: 1, QKey: 5}, ibverbs.QPStateMask|ibverbs.QPPKeyIndex|ibverbs.QPPort|ibverbs.QPQKey))
	try(t, q.Modify(&ibverbs.QPAttr{State: ibverbs.StateRTR}, ibverbs.QPStateMask))
	try(t, q.Modify(&ibverbs.QPAttr{State: ibverbs.StateRTS}, ibverbs.QPStateMask|ibverbs.QPSQPSN))
	self := get(pd.CreateAH(ibverbs.AHAttr{DGID: get(dev.GIDs(1))(t)[0].GID, Port: 1, IsGlobal: true}))(t)

	post := func(id uint64, sge ibverbs.SGE, want ibverbs.Status) {
		t.Helper()
		get(q.PostSend(ibverbs.SendWR{ID: id, Op: ibverbs.OpSend, Flags: ibverbs.Signaled, SGL: []ibverbs.SGE{sge}, UD: self.To(q.Num(), 5)}))(t)
		var wcs [1]ibverbs.WC
		get(cq.Wait(deadline(t), wcs[:]))(t)
		if wcs[0].ID != id || wcs[0].Status != want {
			t.Fatalf("completion %+v, want %d in %v", wcs[0], id, want)
		}
	}
	bad := mem.SGE(0, 8)
	bad.LKey++
	post(1, bad, ibverbs.LocProtErr)
	if a := get(q.Query())(t); a.State != ibverbs.StateSQE || q.State() != ibverbs.StateSQE {
		t.Errorf("state %v, told as %v", a.State, q.State())
	}
	post(2, mem.SGE(0, 8), ibverbs.WRFlushErr)
	try(t, q.Modify(&ibverbs.QPAttr{State: ibverbs.StateRTS}, ibverbs.QPStateMask))
	post(3, mem.SGE(0, 8), ibverbs.Success)
}

// What an address handle is refused for names the field, the device and the peer.
func TestCreateAHNamesTheField(t *testing.T) {
	drv := softroce.New(softroce.Config{Addrs: []netip.Addr{netip.MustParseAddr("10.0.0.1")},
		Network: softroce.OnSim(softroce.NewSim(softroce.SimConfig{}))})
	dev := get(ibverbs.Open("soft0", ibverbs.WithDrivers(drv)))(t)
	defer func() { try(t, dev.Close()) }()
	pd := get(dev.AllocPD())(t)
	_, err := pd.CreateAH(ibverbs.AHAttr{DGID: gid("fd00::9"), Port: 1, IsGlobal: true})
	var e *ibverbs.Error
	const want = "create address handle to fd00::9 on soft0: AHAttr.DGID is fd00::9: invalid argument (the GID of SGIDIndex is 10.0.0.1, of the other IP version)"
	if !errors.As(err, &e) || !errors.Is(err, syscall.EINVAL) || !strings.HasPrefix(err.Error(), want) {
		t.Errorf("got  %v\nwant %s", err, want)
	}
}
