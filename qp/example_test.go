package qp_test

import (
	"context"
	"fmt"
	"net"

	"github.com/purerdma/purerdma/ibverbs"
	"github.com/purerdma/purerdma/ibverbs/driver/memdriver"
	"github.com/purerdma/purerdma/mr"
	"github.com/purerdma/purerdma/qp"
)

// Two queue pairs of one device write to each other. Two processes would send
// each other their Info.
func Example() {
	dev := must(ibverbs.Open("mem0", ibverbs.WithDrivers(memdriver.New(memdriver.Config{}))))
	defer dev.Close()
	pd, cq, buf := must(dev.AllocPD()), must(dev.CreateCQ(16)), must(mr.Alloc(8192))
	defer buf.Close()
	mem := must(pd.RegMR(buf, ibverbs.LocalWrite|ibverbs.RemoteWrite))
	a, b := must(qp.New(pd, cq, cq)), must(qp.New(pd, cq, cq))
	check(a.Connect(b.Info()))
	check(b.Connect(a.Info()))

	copy(buf.Bytes(), "hello")
	must(a.PostSend(ibverbs.SendWR{ID: 1, Op: ibverbs.OpWrite, Flags: ibverbs.Signaled,
		SGL: []ibverbs.SGE{mem.SGE(0, 5)}, Remote: mem.Remote(4096)}))
	var wcs [1]ibverbs.WC
	must(cq.Wait(context.Background(), wcs[:]))
	check(cq.Err(&wcs[0]))
	fmt.Printf("%s over %s\n", buf.Bytes()[4096:4101], a.Choice().Reason)
	// Output: hello over index 1, RoCE v2 10.77.0.1 on memnet0.1, the best by type, scope, family, net device and index
}

// Two processes, here goroutines, connect their queue pairs over a connection that they have.
func ExampleQP_ConnectOver() {
	dev := must(ibverbs.Open("mem0", ibverbs.WithDrivers(memdriver.New(memdriver.Config{}))))
	defer dev.Close()
	end := func(c net.Conn) (*qp.QP, error) {
		pd, cq := must(dev.AllocPD()), must(dev.CreateCQ(16))
		q := must(qp.New(pd, cq, cq, qp.WithAccess(ibverbs.RemoteWrite|ibverbs.RemoteRead)))
		return q, q.ConnectOver(context.Background(), c)
	}
	here, there := net.Pipe()
	peer := make(chan error)
	go func() {
		_, err := end(there)
		peer <- err
	}()
	q := must(end(here))
	check(<-peer)
	fmt.Println(q.State()) // and so is the peer
	// Output: RTS
}

func must[T any](v T, err error) T { check(err); return v }

func check(err error) {
	if err != nil {
		panic(err)
	}
}
