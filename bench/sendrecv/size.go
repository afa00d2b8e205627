package main

import (
	"fmt"
	"strconv"
	"strings"
)

// size is a flag's number of bytes.
type size int

// String implements pflag.Value.
func (s *size) String() string { return strconv.Itoa(int(*s)) }

// Type implements pflag.Value.
func (s *size) Type() string { return "bytes" }

// Set implements pflag.Value.
func (s *size) Set(text string) error {
	digits := text
	shift := 0
	for i, unit := range []string{"K", "M", "G"} {
		if before, ok := strings.CutSuffix(strings.ToUpper(text), unit); ok {
			digits, shift = before, 10*(i+1)
		}
	}
	n, err := strconv.ParseUint(digits, 10, 31)
	if err != nil || n<<shift > 1<<40 {
		return fmt.Errorf("%q is not a number of bytes such as 4096, 64K or 16M", text)
	}
	*s = size(n << shift)
	return nil
}
