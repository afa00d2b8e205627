package qp_test

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
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

// Two processes, here goroutines, connect their queue pairs over a connection that they have. One then tells the other where it may
// write, in 12 bytes of the program's own making.
func ExampleQP_ConnectOver() {
	dev := must(ibverbs.Open("mem0", ibverbs.WithDrivers(memdriver.New(memdriver.Config{}))))
	defer dev.Close()
	const access = ibverbs.RemoteWrite | ibverbs.RemoteRead // the same for queue pair and memory
	end := func(c net.Conn) (*qp.QP, *ibverbs.CQ, *ibverbs.MR, *mr.Buffer) {
		pd, cq, buf := must(dev.AllocPD()), must(dev.CreateCQ(16)), must(mr.Alloc(4096))
		mem := must(pd.RegMR(buf, access|ibverbs.LocalWrite))
		q := must(qp.New(pd, cq, cq, qp.WithAccess(access)))
		check(q.ConnectOver(context.Background(), c)) // receives that the peer needs at once are posted before
		return q, cq, mem, buf
	}
	here, there := net.Pipe()
	written := make(chan string)
	go func() {
		_, _, mem, buf := end(there)
		defer buf.Close()
		mine := mem.Remote(0)
		must(there.Write(binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint64(nil, mine.Addr), mine.RKey)))
		must(io.ReadFull(there, make([]byte, 1))) // a write tells its target nothing: OpWriteWithImm does, or the writer itself
		written <- string(buf.Bytes()[:5])
	}()
	q, cq, mem, buf := end(here)
	defer buf.Close()
	told := make([]byte, 12)
	must(io.ReadFull(here, told))
	copy(buf.Bytes(), "hello")
	must(q.PostSend(ibverbs.SendWR{Op: ibverbs.OpWrite, Flags: ibverbs.Signaled, SGL: []ibverbs.SGE{mem.SGE(0, 5)},
		Remote: ibverbs.Remote{Addr: binary.BigEndian.Uint64(told), RKey: binary.BigEndian.Uint32(told[8:])}}))
	var wcs [1]ibverbs.WC
	must(cq.Wait(context.Background(), wcs[:]))
	check(cq.Err(&wcs[0]))
	must(here.Write([]byte{1}))
	fmt.Println(<-written)
	// Output: hello
}

func must[T any](v T, err error) T { check(err); return v }

func check(err error) {
	if err != nil {
		panic(err)
	}
}
