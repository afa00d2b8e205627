// says: cannot refer to unexported field s in struct literal of type mr.Buffer
package main

import (
	"github.com/purerdma/purerdma/ibverbs/driver"
	"github.com/purerdma/purerdma/mr"
)

func main() { _ = mr.Buffer{s: driver.Span{}} }
