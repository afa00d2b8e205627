package mlx5model

import (
	"bufio"
	"fmt"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// process is the memory of a process. Reading it takes the right to trace the
// process, which a parent has of its children.
type process int

func (p process) read(at uint64, b []byte) error {
	return p.move(unix.ProcessVMReadv, at, b)
}

func (p process) write(at uint64, b []byte) error {
	return p.move(unix.ProcessVMWritev, at, b)
}

func (p process) move(call func(int, []unix.Iovec, []unix.RemoteIovec, uint) (int, error), at uint64, b []byte) error {
	if len(b) == 0 {
		return nil
	}
	local := []unix.Iovec{{Base: &b[0]}}
	local[0].SetLen(len(b))
	n, err := call(int(p), local, []unix.RemoteIovec{{Base: uintptr(at), Len: len(b)}}, 0)
	if err == unix.EPERM {
		return fmt.Errorf("the memory of process %d may not be read: %w", p, err)
	}
	if err != nil || n != len(b) {
		return syscall.EFAULT
	}
	return nil
}

// allows implements memory by /proc/<pid>/maps, which is in the order of addresses.
func (p process) allows(at, n uint64, writable bool) bool {
	if n == 0 || at+n < at {
		return false
	}
	f, err := os.Open(fmt.Sprintf("/proc/%d/maps", p))
	if err != nil {
		return false
	}
	defer f.Close()
	next, end := at, at+n
	for s := bufio.NewScanner(f); s.Scan(); {
		var from, to uint64
		var may string
		if _, err := fmt.Sscanf(s.Text(), "%x-%x %s", &from, &to, &may); err != nil {
			return false
		}
		switch {
		case to <= next:
			continue
		case from > next, len(may) < 2, may[0] != 'r', writable && may[1] != 'w':
			return false
		case to >= end:
			return true
		}
		next = to
	}
	return false
}
