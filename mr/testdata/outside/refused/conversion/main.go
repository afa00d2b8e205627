// says: cannot convert
package main

import "github.com/purerdma/purerdma/ibverbs/driver"

type span struct {
	b []byte
	m *int
}

func main() { _ = driver.Span(span{b: make([]byte, 8)}) }
