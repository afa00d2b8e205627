//go:build unix

package mr_test

import (
	"fmt"
	"structs"

	"github.com/purerdma/purerdma/mr"
)

// A structure that a peer writes is a view of memory off the heap.
func ExampleView() {
	buf, err := mr.Alloc(4096)
	if err != nil {
		panic(err)
	}
	defer buf.Close()

	type head struct {
		_     structs.HostLayout
		Index uint64
		Tag   uint32
		_     uint32
	}
	h, err := mr.View[head](buf, 64)
	if err != nil {
		panic(err)
	}
	h.Tag = 7
	fmt.Println(buf.Bytes()[64+8])

	_, err = mr.View[struct{ P *int }](buf, 0)
	fmt.Println(err)
	// Output:
	// 7
	// view buffer, 4096 bytes: not a view: struct { P *int } holds a pointer (*int), which the collector would not see
}
