package bootstrap_test

import (
	"context"
	"fmt"
	"net/netip"

	"github.com/purerdma/purerdma/socketboot"
	"github.com/purerdma/purerdma/socketboot/bootstrap"
)

// Two ranks meet. In a real job each is a process of its own, and only the id travels between them.
func Example() {
	ctx := context.Background()
	network := socketboot.Net{Bind: netip.MustParseAddrPort("127.0.0.1:0")} // without it, an interface is chosen as NCCL does
	root, err := bootstrap.NewRoot(ctx, bootstrap.RootConfig{Net: network})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer root.Close()
	rank := func(rank int, done chan<- string) {
		job, err := bootstrap.Join(ctx, bootstrap.Config{ID: root.ID(), Rank: rank, Size: 2, Net: network})
		if err != nil {
			done <- err.Error()
			return
		}
		defer job.Close()
		all, err := job.AllGather(ctx, fmt.Appendf(nil, "rank %d", rank))
		done <- fmt.Sprintf("%s, %v", all, err)
	}
	done := make(chan string)
	go rank(0, done)
	go rank(1, done)
	fmt.Println(<-done)
	fmt.Println(<-done)
	// Output:
	// [rank 0 rank 1], <nil>
	// [rank 0 rank 1], <nil>
}
