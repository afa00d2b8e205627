//go:build !linux

package tempdir

import (
	"os"
	"regexp"
)

func claim(string) (*os.File, error) { return nil, nil }

func sweep(string, *regexp.Regexp) {}
