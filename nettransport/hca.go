package nettransport

import (
	"fmt"
	"strconv"
	"strings"
)

// hcaFilter is NCCL_IB_HCA: names of devices, by prefix or exact, with or without a port, to take or to leave.
type hcaFilter struct {
	not, exact bool
	entries    []hcaEntry
}

type hcaEntry struct {
	name string
	port int // 0 is any
}

// parseHCA reads "mlx5_0:1,mlx5_1", behind "^" for all others and then "=" for whole names in place of prefixes.
func parseHCA(s string) (f hcaFilter, err error) {
	rest := s
	if r, ok := strings.CutPrefix(rest, "^"); ok {
		f.not, rest = true, r
	}
	if r, ok := strings.CutPrefix(rest, "="); ok {
		f.exact, rest = true, r
	}
	if rest == "" {
		if s != "" {
			return f, configError("HCA", fmt.Sprintf("is %q, which names no device", s))
		}
		return f, nil
	}
	for word := range strings.SplitSeq(rest, ",") {
		name, number, hasPort := strings.Cut(word, ":")
		e := hcaEntry{name: name}
		if hasPort {
			if e.port, err = strconv.Atoi(number); err != nil || e.port < 1 || e.port > 255 {
				return f, configError("HCA", fmt.Sprintf("has %q, want a port from 1 to 255 after the colon", word))
			}
		}
		if name == "" {
			return f, configError("HCA", fmt.Sprintf("is %q, in which a name is empty", s))
		}
		f.entries = append(f.entries, e)
	}
	return f, nil
}

func (f hcaFilter) match(device string, port int) bool {
	if len(f.entries) == 0 {
		return true
	}
	for _, e := range f.entries {
		named := strings.HasPrefix(device, e.name) && (!f.exact || device == e.name)
		if named && (e.port == 0 || e.port == port) {
			return !f.not
		}
	}
	return f.not
}

// mayMatch says whether some port of the device can match, so that others need not be opened.
func (f hcaFilter) mayMatch(device string, ports int) bool {
	for port := 1; port <= ports; port++ {
		if f.match(device, port) {
			return true
		}
	}
	return false
}
