package main

import (
	"os"

	"github.com/purerdma/purerdma/bench/pair"
)

func main() {
	if pair.Second() {
		os.Exit(second())
	}
	os.Exit((&tool{}).command().Main(os.Args[1:], os.Stdout, os.Stderr))
}
