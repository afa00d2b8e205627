package ibverbs_test

import (
	"context"
	"fmt"
	"net/netip"

	"github.com/purerdma/purerdma/ibverbs"
	"github.com/purerdma/purerdma/ibverbs/driver/memdriver"
	"github.com/purerdma/purerdma/ibverbs/softroce"
	"github.com/purerdma/purerdma/mr"
	"github.com/purerdma/purerdma/qp"
)

// Opens a device, registers memory, connects two queue pairs and writes from one
// to the other. Two processes would send each other the Info of their end.
func Example() {
	// Without WithDrivers, Open finds the machine's devices; "" is the best.
	dev := must2(ibverbs.Open("mem0", ibverbs.WithDrivers(memdriver.New(memdriver.Config{}))))
	defer dev.Close() // and all that is made from it
	pd, cq, buf := must2(dev.AllocPD()), must2(dev.CreateCQ(16, ibverbs.WithEvents())), must2(mr.Alloc(8192))
	defer buf.Close()
	mem := must2(pd.RegMR(buf, ibverbs.LocalWrite|ibverbs.RemoteWrite))

	a, b := must2(qp.New(pd, cq, cq)), must2(qp.New(pd, cq, cq))
	try2(a.Connect(b.Info()))
	try2(b.Connect(a.Info()))

	copy(buf.Bytes(), "hello")
	must2(a.PostSend(ibverbs.SendWR{ID: 1, Op: ibverbs.OpWrite, Flags: ibverbs.Signaled,
		SGL: []ibverbs.SGE{mem.SGE(0, 5)}, Remote: mem.Remote(4096)}))
	var wcs [4]ibverbs.WC
	n := must2(cq.Wait(context.Background(), wcs[:]))
	for i := range wcs[:n] {
		try2(cq.Err(&wcs[i]))
	}
	fmt.Println(string(buf.Bytes()[4096:4101]))
	// Output: hello
}

// Waits for a port to go down and come back.
func ExampleContext_Subscribe() {
	fabric := memdriver.New(memdriver.Config{})
	dev := must2(ibverbs.Open("mem0", ibverbs.WithDrivers(fabric)))
	defer dev.Close()
	events := dev.Subscribe()
	defer events.Close()

	fabric.Device("mem0").SetPort(1, ibverbs.PortDown)
	fabric.Device("mem0").SetPort(1, ibverbs.PortActive)
	for range 2 {
		e := must2(events.Next(context.Background()))
		fmt.Println(e.Type, "on port", e.Port)
	}
	// Output:
	// IBV_EVENT_PORT_ERR on port 1
	// IBV_EVENT_PORT_ACTIVE on port 1
}

// Tells a failed completion by its status, and who the peer was.
func ExampleCQ_Err() {
	fabric := memdriver.New(memdriver.Config{})
	dev := must2(ibverbs.Open("mem0", ibverbs.WithDrivers(fabric)))
	defer dev.Close()
	pd, cq, buf := must2(dev.AllocPD()), must2(dev.CreateCQ(16)), must2(mr.Alloc(8))
	defer buf.Close()
	mem := must2(pd.RegMR(buf, ibverbs.LocalWrite))
	a, b := must2(qp.New(pd, cq, cq)), must2(qp.New(pd, cq, cq))
	try2(a.Connect(b.Info()))
	try2(b.Connect(a.Info()))

	must2(a.PostSend(ibverbs.SendWR{ID: 9, Op: ibverbs.OpWrite, SGL: []ibverbs.SGE{mem.SGE(0, 8)}, Remote: ibverbs.Remote{Addr: 4096, RKey: 1}}))
	var wcs [1]ibverbs.WC
	must2(cq.Wait(context.Background(), wcs[:]))
	fmt.Println(cq.Err(&wcs[0]))
	// Output: complete request on mem0, QP 0x11, peer QP 0x12 at 10.77.0.1: IBV_WC_REM_ACCESS_ERR, request 0x9, vendor syndrome 0x0: the remote key does not allow this access to this range, or the peer's QP does not grant it (QPAttr.Access; qp.WithAccess there)
}

// Answers a datagram: its completion and the header in front of it tell the way back.
func ExamplePD_CreateAHFromWC() {
	// A network in memory; without Network the devices are on UDP.
	drv := softroce.New(softroce.Config{Addrs: []netip.Addr{netip.MustParseAddr("10.0.0.1")},
		Network: softroce.OnSim(softroce.NewSim(softroce.SimConfig{}))})
	dev := must2(ibverbs.Open("soft0", ibverbs.WithDrivers(drv)))
	defer dev.Close()
	pd, cq, buf := must2(dev.AllocPD()), must2(dev.CreateCQ(16, ibverbs.WithEvents())), must2(mr.Alloc(4096))
	defer buf.Close()
	mem := must2(pd.RegMR(buf, ibverbs.LocalWrite))

	// Two datagram QPs in RTS that share a Q_Key, each with one receive.
	const qkey = 0x11111111
	var qps [2]*ibverbs.QP
	for i := range qps {
		q := must2(pd.CreateQP(ibverbs.QPConfig{Type: ibverbs.UD, SendCQ: cq, RecvCQ: cq,
			Cap: ibverbs.QPCap{SendWR: 4, RecvWR: 4, SendSGE: 1, RecvSGE: 1, Inline: 64}}))
		try2(q.Modify(&ibverbs.QPAttr{State: ibverbs.StateInit, Port: 1, QKey: qkey},
			ibverbs.QPStateMask|ibverbs.QPPKeyIndex|ibverbs.QPPort|ibverbs.QPQKey))
		try2(q.Modify(&ibverbs.QPAttr{State: ibverbs.StateRTR}, ibverbs.QPStateMask))
		try2(q.Modify(&ibverbs.QPAttr{State: ibverbs.StateRTS}, ibverbs.QPStateMask|ibverbs.QPSQPSN))
		must2(q.PostRecv(ibverbs.RecvWR{ID: uint64(i), SGL: []ibverbs.SGE{mem.SGE(2048*i, 2048)}}))
		qps[i] = q
	}

	gid := must2(dev.GIDs(1))[0].GID
	to := must2(pd.CreateAH(ibverbs.AHAttr{DGID: gid, Port: 1, IsGlobal: true, HopLimit: 64}))
	must2(qps[0].PostSend(ibverbs.SendWR{Op: ibverbs.OpSend, Inline: []byte("ping"), UD: to.To(qps[1].Num(), qkey)}))

	for range qps { // the datagram, then the answer to it
		var wcs [1]ibverbs.WC
		must2(cq.Wait(context.Background(), wcs[:]))
		wc := &wcs[0]
		try2(cq.Err(wc))
		got := buf.Bytes()[2048*wc.ID:][:wc.ByteLen]
		fmt.Printf("%s\n", got[ibverbs.GRHSize:])
		if wc.QPN == qps[1].Num() {
			back := must2(pd.CreateAHFromWC(1, wc, got[:ibverbs.GRHSize]))
			must2(qps[1].PostSend(ibverbs.SendWR{Op: ibverbs.OpSend, Inline: []byte("pong"), UD: back.To(wc.SrcQP, qkey)}))
		}
	}
	// Output:
	// ping
	// pong
}

// Serves several peers from one queue of receives, and hears when it runs low.
func ExampleSRQ() {
	// A network in memory; without Network the devices are on UDP.
	drv := softroce.New(softroce.Config{Addrs: []netip.Addr{netip.MustParseAddr("10.0.0.1")},
		Network: softroce.OnSim(softroce.NewSim(softroce.SimConfig{}))})
	dev := must2(ibverbs.Open("soft0", ibverbs.WithDrivers(drv)))
	defer dev.Close()
	pd, cq, buf := must2(dev.AllocPD()), must2(dev.CreateCQ(64, ibverbs.WithEvents())), must2(mr.Alloc(4096))
	defer buf.Close()
	mem := must2(pd.RegMR(buf, ibverbs.LocalWrite))
	events := dev.Subscribe()
	defer events.Close()

	// Four receives, and an event when fewer than two are left.
	srq := must2(pd.CreateSRQ(ibverbs.SRQConfig{WR: 4, SGE: 1, Limit: 2}))
	for id := range uint64(4) {
		must2(srq.PostRecv(ibverbs.RecvWR{ID: id, SGL: []ibverbs.SGE{mem.SGE(int(id)*64, 64)}}))
	}
	// Three clients, each with a QP of its own at the server.
	clients := must2(dev.CreateCQ(16))
	for i := range 3 {
		client, server := must2(qp.New(pd, clients, clients, qp.WithInline(64))), must2(qp.New(pd, cq, cq, qp.WithSRQ(srq)))
		try2(client.Connect(server.Info()))
		try2(server.Connect(client.Info()))
		must2(client.PostSend(ibverbs.SendWR{Op: ibverbs.OpSend, Inline: fmt.Append(nil, "client ", i)}))

		var wcs [1]ibverbs.WC
		must2(cq.Wait(context.Background(), wcs[:]))
		try2(cq.Err(&wcs[0]))
		fmt.Printf("receive %d: %s\n", wcs[0].ID, buf.Bytes()[64*wcs[0].ID:][:wcs[0].ByteLen])
	}
	for {
		if e := must2(events.Next(context.Background())); e.Object == srq {
			fmt.Println(e.Type)
			break
		}
	}
	// Output:
	// receive 0: client 0
	// receive 1: client 1
	// receive 2: client 2
	// IBV_EVENT_SRQ_LIMIT_REACHED
}

func must2[T any](v T, err error) T {
	try2(err)
	return v
}
