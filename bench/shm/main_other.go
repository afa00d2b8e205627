//go:build !linux

package main

import (
	"fmt"
	"os"
)

func main() {
	fmt.Fprintln(os.Stderr, "error: shared memory between processes needs Linux")
	os.Exit(1)
}
