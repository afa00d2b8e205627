//go:build linux

package main

import (
	"fmt"
	"os/exec"
	"regexp"
	"strconv"
)

// fromLimits runs the program in C++ and gives the first number that the pattern finds in what it prints, 0 without the program, or if it
// prints nothing: it does not know that work.
func (t *tool) fromLimits(pattern string, args ...string) (float64, error) {
	if t.limits == "" {
		return 0, nil
	}
	out, err := exec.Command(t.limits, args...).CombinedOutput()
	if err != nil {
		return 0, fmt.Errorf("%s %v: %w\n%s", t.limits, args, err, out)
	}
	if len(out) == 0 {
		return 0, nil
	}
	found := regexp.MustCompile(pattern).FindSubmatch(out)
	if found == nil {
		return 0, fmt.Errorf("%s %v prints no %q:\n%s", t.limits, args, pattern, out)
	}
	return strconv.ParseFloat(string(found[1]), 64)
}

// limit adds a sample if there is one.
func limit(all []float64, v float64) []float64 {
	if v == 0 {
		return all
	}
	return append(all, v)
}
