// says: cannot refer to unexported field b in struct literal of type driver.Span
package main

import (
	"github.com/purerdma/purerdma/ibverbs"
	"github.com/purerdma/purerdma/ibverbs/driver"
)

type mine struct{}

func (mine) Span() driver.Span { return driver.Span{b: make([]byte, 8)} }

func main() {
	var pd *ibverbs.PD
	_, _ = pd.RegMR(mine{}, ibverbs.LocalWrite)
}
