//go:build hw && linux

package ibverbs_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/purerdma/purerdma/ibverbs"
	"github.com/purerdma/purerdma/internal/hwtest"
	"github.com/purerdma/purerdma/mr"
)

// The header that a device puts before a datagram tells the way back, with each kind
// of address and also where the datagram never left the device.
func TestDatagramIsAnswered(t *testing.T) {
	for _, at := range hwtest.Places(t) {
		t.Run(fmt.Sprintf("%s %v", at.Device, at.GID.GID), func(t *testing.T) {
			answered(t, at, at)
		})
	}
	t.Run("across", func(t *testing.T) {
		a, b := hwtest.Pair(t, false)
		answered(t, a, b)
	})
}

func answered(t *testing.T, at, there hwtest.Place) {
	a, b := openDatagrams(t, at), openDatagrams(t, there)
	ah, err := a.pd.CreateAH(ibverbs.AHAttr{DGID: there.GID.GID, SGIDIndex: at.GID.Index, Port: at.Port, HopLimit: 9, TrafficClass: 0x20, IsGlobal: true})
	ok(t, err)
	a.send(t, "ping", ah.To(b.qp.Num(), datagramQKey))
	wc := b.got(t, "ping")
	way, err := b.dev.AHAttrFromWC(there.Port, &wc, b.buf.Bytes()[:ibverbs.GRHSize])
	ok(t, err)
	if way.DGID != at.GID.GID || way.SGIDIndex != there.GID.Index || way.TrafficClass != 0x20 {
		t.Errorf("the way back is %+v, want one to %v from GID index %d", way, at.GID.GID, there.GID.Index)
	}
	back, err := b.pd.CreateAHFromWC(there.Port, &wc, b.buf.Bytes()[:ibverbs.GRHSize])
	ok(t, err)
	b.send(t, "pong", back.To(wc.SrcQP, datagramQKey))
	a.got(t, "pong")
}

const datagramQKey = 0x11111111

// datagramEnd is a UD QP in RTS with one receive of a page.
type datagramEnd struct {
	dev *ibverbs.Context
	pd  *ibverbs.PD
	cq  *ibverbs.CQ
	qp  *ibverbs.QP
	buf *mr.Buffer
}

func openDatagrams(t *testing.T, at hwtest.Place) *datagramEnd {
	t.Helper()
	e := &datagramEnd{dev: at.Open(t)}
	if err := e.dev.Probe(ibverbs.FeatureUD); err != nil {
		t.Skip(err)
	}
	var err error
	e.buf, err = mr.Alloc(4096)
	ok(t, err)
	t.Cleanup(func() {
		ok(t, e.dev.Close())
		ok(t, e.buf.Close())
	})
	e.pd, err = e.dev.AllocPD()
	ok(t, err)
	e.cq, err = e.dev.CreateCQ(16)
	ok(t, err)
	mem, err := e.pd.RegMR(e.buf, ibverbs.LocalWrite)
	ok(t, err)
	e.qp, err = e.pd.CreateQP(ibverbs.QPConfig{Type: ibverbs.UD, SendCQ: e.cq, RecvCQ: e.cq, Cap: ibverbs.QPCap{SendWR: 4, RecvWR: 4, SendSGE: 1, RecvSGE: 1, Inline: 16}})
	ok(t, err)
	ok(t, e.qp.Modify(&ibverbs.QPAttr{State: ibverbs.StateInit, Port: at.Port, QKey: datagramQKey},
		ibverbs.QPStateMask|ibverbs.QPPKeyIndex|ibverbs.QPPort|ibverbs.QPQKey))
	_, err = e.qp.PostRecv(ibverbs.RecvWR{ID: 1, SGL: []ibverbs.SGE{mem.SGE(0, 4096)}})
	ok(t, err)
	ok(t, e.qp.Modify(&ibverbs.QPAttr{State: ibverbs.StateRTR}, ibverbs.QPStateMask))
	ok(t, e.qp.Modify(&ibverbs.QPAttr{State: ibverbs.StateRTS}, ibverbs.QPStateMask|ibverbs.QPSQPSN))
	return e
}

func (e *datagramEnd) send(t *testing.T, text string, to ibverbs.Destination) {
	t.Helper()
	_, err := e.qp.PostSend(ibverbs.SendWR{Op: ibverbs.OpSend, Inline: []byte(text), UD: to})
	ok(t, err)
}

func (e *datagramEnd) got(t *testing.T, text string) ibverbs.WC {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	var wcs [1]ibverbs.WC
	_, err := e.cq.Wait(ctx, wcs[:])
	ok(t, err)
	ok(t, e.cq.Err(&wcs[0]))
	if got := string(e.buf.Bytes()[ibverbs.GRHSize:wcs[0].ByteLen]); got != text {
		t.Errorf("got %q, want %q", got, text)
	}
	return wcs[0]
}
