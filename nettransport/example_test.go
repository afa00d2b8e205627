package nettransport_test

import (
	"context"
	"fmt"
	"log/slog"
	"net/netip"

	"github.com/purerdma/purerdma/ibverbs"
	"github.com/purerdma/purerdma/ibverbs/driver/memdriver"
	"github.com/purerdma/purerdma/mr"
	"github.com/purerdma/purerdma/nettransport"
	"github.com/purerdma/purerdma/socketboot"
)

// Two ends, here in one process over a device in memory. A program leaves Find and Net out, and the handle travels to the peer by
// whatever way the program has.
func Example() {
	config := nettransport.Config{
		Find: []ibverbs.Option{ibverbs.WithDrivers(memdriver.New(memdriver.Config{}))},
		Net:  socketboot.Net{Bind: netip.MustParseAddrPort("127.0.0.1:0")},
		Log:  slog.New(slog.DiscardHandler),
	}
	t := must(nettransport.New(config))
	defer t.Close()
	ctx := context.Background()

	listener := must(t.Listen(ctx, 0))
	defer listener.Close()
	sender := must(t.Connect(ctx, 0, listener.Handle()))
	defer sender.Close()
	receiver := must(listener.Accept(ctx))
	defer receiver.Close()

	from, to := must(mr.Alloc(4096)), must(mr.Alloc(4096))
	defer from.Close()
	defer to.Close()
	source, target := must(sender.RegMR(from)), must(receiver.RegMR(to))

	r := must(receiver.Recv(ctx, target.Buffer(0, 4096, 7)))
	n := copy(from.Bytes(), "hello")
	s := must(sender.Send(ctx, source.Buffer(0, n, 7))) // waits for the offer; Isend does not
	var size [1]int
	check(r.Wait(ctx, size[:]))
	check(s.Wait(ctx, nil))
	fmt.Println(string(to.Bytes()[:size[0]]))
	// Output: hello
}

func must[T any](v T, err error) T {
	check(err)
	return v
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}
