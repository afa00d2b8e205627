// What a program of another module may do.
package main

import (
	"github.com/purerdma/purerdma/ibverbs"
	"github.com/purerdma/purerdma/mr"
)

type mine struct{ *mr.Buffer }

func register(pd *ibverbs.PD) error {
	buf, err := mr.Alloc(4096)
	if err != nil {
		return err
	}
	_, err = pd.RegMR(mine{buf}, ibverbs.LocalWrite)
	return err
}

func main() { _ = register }
