// says: use of internal package github.com/purerdma/purerdma/internal/offheap not allowed
package main

import "github.com/purerdma/purerdma/internal/offheap"

func main() { _, _ = offheap.Map(8, offheap.Options{}) }
