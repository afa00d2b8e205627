// Command cgo is c/peer.c with each call of libibverbs made by cgo:
//
//	CGO_ENABLED=1 go build ./bench/mlx5/testdata/cgo
package main

// #cgo CFLAGS: -O2 -I${SRCDIR}/../../c
// #cgo LDFLAGS: -libverbs -lmlx5
// #define NO_MAIN
// #include "peer.c"
import "C"

import (
	"fmt"
	"os"
	"strconv"
	"time"

	"github.com/purerdma/purerdma/bench/stats"
)

func main() {
	if len(os.Args) != 3 {
		os.Exit(2)
	}
	list, err1 := strconv.Atoi(os.Args[1])
	ms, err2 := strconv.Atoi(os.Args[2])
	if err1 != nil || err2 != nil || list < 1 || list > C.MOST {
		os.Exit(2)
	}
	C.open_all()
	C.make_list(C.int(list))
	var posts, polls []float64
	calls := C.DEPTH / list
	for end := time.Now().Add(time.Duration(ms) * time.Millisecond); time.Now().Before(end); {
		start := time.Now()
		for range calls {
			if C.post() != 0 {
				fmt.Fprintln(os.Stderr, "post failed")
				os.Exit(1)
			}
		}
		posts = append(posts, float64(time.Since(start).Nanoseconds())/float64(calls))
		C.complete(C.DEPTH)
		last := C.int(0)
		start = time.Now()
		for got := C.int(0); got < C.DEPTH; got += last {
			last = C.poll(C.int(list))
		}
		polls = append(polls, float64(time.Since(start).Nanoseconds())/float64(calls))
		C.check(last, C.int(list))
	}
	fmt.Printf("%.3f %.3f\n", stats.Median(posts), stats.Median(polls))
}
