package mlx5model

import (
	"runtime"
	"testing"

	"github.com/purerdma/purerdma/ibverbs/driver"
	"github.com/purerdma/purerdma/internal/offheap"
)

// ourScript is what testdata/script/main.c does, by our driver.
func ourScript(t *testing.T, k *Local) {
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	dev := openOurs(t, k, Config{}, 64)
	pd, err := dev.AllocPD()
	must(err)
	channel, err := dev.CreateCompChannel()
	must(err)
	cq, err := dev.CreateCQ(driver.CQConfig{Depth: 15, Channel: channel})
	must(err)
	mem, err := offheap.Map(8192, offheap.Options{})
	must(err)
	const all = driver.LocalWrite | driver.RemoteWrite | driver.RemoteRead | driver.RemoteAtomic
	mr, err := pd.RegMR(mem, mem.Addr(), all)
	must(err)
	qp, err := pd.CreateQP(driver.QPConfig{Type: driver.RC, SendCQ: cq, RecvCQ: cq, Cap: driver.QPCap{SendWR: 8, RecvWR: 8, SendSGE: 2, RecvSGE: 2, Inline: 32}})
	must(err)
	must(qp.Modify(&driver.QPAttr{State: driver.StateInit, Port: 1, Access: all}, driver.QPStateMask|driver.QPPort|driver.QPPKeyIndex|driver.QPAccessFlags))
	must(qp.Modify(&driver.QPAttr{State: driver.StateRTR, AH: driver.AHAttr{DLID: lid, Port: 1}, PathMTU: driver.MTU1024, DestQPN: qp.Num(), RQPSN: 7,
		MaxDestRdAtomic: 1, MinRNRTimer: 1}, driver.QPStateMask|driver.QPAV|driver.QPPathMTU|driver.QPDestQPN|driver.QPRQPSN|driver.QPMaxDestRdAtomic|driver.QPMinRNRTimer))
	must(qp.Modify(&driver.QPAttr{State: driver.StateRTS, SQPSN: 7, Timeout: 14, RetryCnt: 6, RNRRetry: 7, MaxRdAtomic: 1},
		driver.QPStateMask|driver.QPSQPSN|driver.QPTimeout|driver.QPRetryCnt|driver.QPRNRRetry|driver.QPMaxQPRdAtomic))
	lkey, rkey := mr.Keys()
	send := func(op driver.Opcode, flags driver.SendFlags, inline bool, receives int) {
		t.Helper()
		wr := driver.SendWR{ID: 2, Op: op, Flags: flags | driver.Signaled, Imm: 0x01020304, Remote: driver.Remote{Addr: mem.Addr() + 1024, RKey: rkey},
			SGL: []driver.SGE{{Addr: mem.Addr(), Length: 8, LKey: lkey}, {Addr: mem.Addr() + 64, Length: 8, LKey: lkey}}}
		if op == driver.OpFetchAdd || op == driver.OpCmpSwap {
			wr.SGL, wr.Remote.Addr, wr.CompareAdd, wr.Swap = wr.SGL[:1], mem.Addr()+512, 5, 6
		}
		if inline {
			wr.SGL, wr.Inline = nil, make([]byte, 8)
		}
		if receives != 0 {
			_, err := qp.PostRecv([]driver.RecvWR{{ID: 1, SGL: []driver.SGE{{Addr: mem.Addr() + 2048, Length: 64, LKey: lkey}}}})
			must(err)
		}
		_, err := qp.PostSend([]driver.SendWR{wr})
		must(err)
		for n := 1 + receives; n > 0; {
			var wcs [1]driver.WC
			got, err := cq.Poll(wcs[:])
			must(err)
			if got != 0 && wcs[0].Status != driver.Success {
				t.Fatalf("completion %+v", wcs[0])
			}
			n -= got
			runtime.Gosched()
		}
	}
	send(driver.OpSend, 0, false, 1)
	send(driver.OpSendWithImm, driver.Solicited, false, 1)
	send(driver.OpSend, 0, true, 1)
	send(driver.OpWrite, 0, false, 0)
	send(driver.OpWrite, 0, true, 0)
	send(driver.OpWriteWithImm, 0, false, 1)
	send(driver.OpRead, 0, false, 0)
	send(driver.OpFetchAdd, 0, false, 0)
	send(driver.OpCmpSwap, 0, false, 0)
	send(driver.OpSend, driver.Fence, false, 1)
	_, err = qp.Query()
	must(err)
	must(qp.Close())
	qp.Purge()
	must(mr.Close())
	must(mem.Release())
	must(cq.Close())
	must(channel.Close())
	must(pd.Close())
	must(dev.Close())
}
