// Program all links every function of package mmio, for a test that reads what
// the linker made of them.
package main

import (
	"fmt"

	"github.com/purerdma/purerdma/internal/mmio"
)

func main() {
	fmt.Println(mmio.LoadAcquire32, mmio.LoadAcquire64, mmio.StoreRelease32, mmio.StoreRelease64,
		mmio.Store32, mmio.Store64, mmio.CopyBlock, mmio.PostWord, mmio.PostBlock, mmio.StoreFence, mmio.OrderStores, mmio.LoadFence, mmio.FullFence)
}
