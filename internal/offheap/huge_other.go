//go:build unix && !linux

package offheap

import "errors"

func hugeFlags(int) (int, error) { return 0, errors.New("huge pages are a feature of Linux") }

func adviseHuge([]byte) {}
