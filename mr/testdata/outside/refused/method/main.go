// says: wrong type for method Span
package main

import "github.com/purerdma/purerdma/ibverbs"

type mine struct{}

func (mine) Span() []byte { return make([]byte, 8) }

func main() {
	var pd *ibverbs.PD
	_, _ = pd.RegMR(mine{}, ibverbs.LocalWrite)
}
