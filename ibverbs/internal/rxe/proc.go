package rxe

import (
	"bufio"
	"bytes"
	"fmt"
	"io/fs"
	"strings"
)

// release is the kernel's, "6.1.0-50-amd64" for example; "" if it is not known.
func release(proc fs.FS) string {
	b, _ := fs.ReadFile(proc, "sys/kernel/osrelease")
	return strings.TrimSpace(string(b))
}

// atLeast compares a kernel release with a version.
func atLeast(release string, major, minor int) bool {
	var a, b int
	if _, err := fmt.Sscanf(release, "%d.%d", &a, &b); err != nil {
		return false
	}
	return a > major || (a == major && b >= minor)
}

// lockedMemory is how many bytes the process may lock (RLIMIT_MEMLOCK) and how
// many are pinned by its registrations; ok is false where there is no limit.
func lockedMemory(proc fs.FS) (limit, pinned uint64, ok bool) {
	limits, _ := fs.ReadFile(proc, "self/limits")
	_, err := fmt.Sscan(field(limits, "Max locked memory"), &limit) // "unlimited" is no number
	status, _ := fs.ReadFile(proc, "self/status")
	_, _ = fmt.Sscan(field(status, "VmPin:"), &pinned)
	return limit, pinned << 10, err == nil
}

// field is what follows a name at the start of a line.
func field(text []byte, name string) string {
	for s := bufio.NewScanner(bytes.NewReader(text)); s.Scan(); {
		if rest, ok := strings.CutPrefix(s.Text(), name); ok {
			return rest
		}
	}
	return ""
}
