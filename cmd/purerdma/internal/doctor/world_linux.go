package doctor

import (
	"errors"
	"io/fs"
	"os"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/purerdma/purerdma/cmd/purerdma/internal/inventory"
)

// Here is this machine.
func Here() *World {
	w := &World{Root: os.DirFS("/"), CanUse: canUse, MemLock: memLockLimit(), Privileged: mayLock()}
	w.MPSPipe = strings.TrimPrefix(os.Getenv("CUDA_MPS_PIPE_DIRECTORY"), "/")
	w.Devices, w.ListError = inventory.Take(nil)
	var st unix.Statfs_t
	if err := unix.Statfs("/dev/shm", &st); err == nil {
		w.ShmSize = st.Blocks * uint64(st.Bsize)
	}
	if mode, err := netlink.RdmaSystemGetNetnsMode(); err == nil {
		w.Namespaces = mode
	}
	return w
}

func canUse(name string) error {
	f, err := os.OpenFile("/"+name, os.O_RDWR, 0)
	if err != nil {
		var p *fs.PathError
		if errors.As(err, &p) {
			return p.Err
		}
		return err
	}
	return f.Close()
}

func memLockLimit() uint64 {
	var r unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_MEMLOCK, &r); err != nil {
		return 0
	}
	return r.Cur
}

// mayLock reports CAP_IPC_LOCK, with which the limit does not count.
func mayLock() bool {
	b, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return false
	}
	for line := range strings.Lines(string(b)) {
		if caps, ok := strings.CutPrefix(line, "CapEff:"); ok {
			return hasBit(strings.TrimSpace(caps), unix.CAP_IPC_LOCK)
		}
	}
	return false
}

// hasBit reads a number of hexadecimal digits.
func hasBit(hex string, bit int) bool {
	i := len(hex) - 1 - bit/4
	if i < 0 {
		return false
	}
	digit := strings.IndexByte("0123456789abcdef", hex[i])
	return digit >= 0 && digit>>(bit%4)&1 == 1
}
