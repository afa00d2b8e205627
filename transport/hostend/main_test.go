package hostend

import (
	"fmt"
	"os"
	"testing"

	"github.com/purerdma/purerdma/internal/leaktest"
)

// ordersVariable tells a process that it is the other rank of a test, and which.
const ordersVariable = "PURERDMA_HOSTEND_ORDERS"

// other is what that process does, where there is one.
var other func(orders string) error

func TestMain(m *testing.M) {
	if orders := os.Getenv(ordersVariable); orders != "" && other != nil {
		if err := other(orders); err != nil {
			fmt.Fprintln(os.Stderr, "rank 1:", err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	leaktest.Main(m)
}
