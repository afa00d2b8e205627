package mlx5model

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"strings"
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
	switch {
	case err == unix.EPERM:
		return fmt.Errorf("the memory of process %d may not be read: %w", p, err)
	case err == unix.ESRCH:
		return syscall.ESRCH
	case err != nil, n != len(b):
		return syscall.EFAULT
	}
	return nil
}

// ended implements memory. Nothing is mapped at 0.
func (p process) ended() bool { return p.read(0, make([]byte, 1)) == syscall.ESRCH }

// text is a string that ends with a zero, ENAMETOOLONG if none of the bytes that a path
// may have is one.
func (p process) text(at uint64) (string, error) {
	var text []byte
	for len(text) < unix.PathMax {
		b := make([]byte, pageSize-at%pageSize) // the next page may not be there
		if err := p.read(at, b); err != nil {
			return "", err
		}
		if end := bytes.IndexByte(b, 0); end >= 0 {
			return string(append(text, b[:end]...)), nil
		}
		text = append(text, b...)
		at += uint64(len(b))
	}
	return "", syscall.ENAMETOOLONG
}

// processOf is the process of a thread, 0 if there is no such thread.
func processOf(tid int) (pid int) {
	b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", tid))
	_, behind, _ := strings.Cut(string(b), "\nTgid:")
	_, _ = fmt.Sscan(behind, &pid)
	return pid
}

// mappedAt is the file that an address of a process is mapped from, and where in it.
func mappedAt(pid int, at uint64) (fileID, int64) {
	f, err := os.Open(fmt.Sprintf("/proc/%d/maps", pid))
	if err != nil {
		return fileID{}, 0
	}
	defer f.Close()
	for s := bufio.NewScanner(f); s.Scan(); {
		var from, to, off, inode uint64
		var major, minor uint32
		var may string
		if _, err := fmt.Sscanf(s.Text(), "%x-%x %s %x %x:%x %d", &from, &to, &may, &off, &major, &minor, &inode); err != nil {
			break
		}
		if from <= at && at < to {
			return fileID{unix.Mkdev(major, minor), inode}, int64(off + at - from)
		}
	}
	return fileID{}, 0
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
