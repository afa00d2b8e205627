package mlx5model

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/purerdma/purerdma/ibverbs/internal/mlx5model/internal/notify"
	"golang.org/x/sys/unix"
)

// fileCalls are the system calls about files by name, and about what an open file is.
// oldCalls are those that not every architecture has.
var fileCalls = map[int]func(*supervisor, *notify.Call) notify.Reply{}

func init() {
	add := func(calls map[int]func(*supervisor, *notify.Call) notify.Reply) {
		for number, f := range calls {
			fileCalls[number] = f
		}
	}
	add(oldCalls)
	add(map[int]func(*supervisor, *notify.Call) notify.Reply{
		unix.SYS_OPENAT: func(s *supervisor, c *notify.Call) notify.Reply {
			return s.openAt(c, int32(c.Args[0]), c.Args[1], int(c.Args[2]))
		},
		unix.SYS_OPENAT2: func(s *supervisor, c *notify.Call) notify.Reply {
			return s.openAt2(c, int32(c.Args[0]), c.Args[1], c.Args[2], c.Args[3])
		},
		unix.SYS_FSTAT: func(s *supervisor, c *notify.Call) notify.Reply {
			return s.fstat(c, int32(c.Args[0]), c.Args[1])
		},
		unix.SYS_STATX: func(s *supervisor, c *notify.Call) notify.Reply {
			return s.statX(c, int32(c.Args[0]), c.Args[1], int(c.Args[2]), int(c.Args[3]), c.Args[4])
		},
		unix.SYS_READLINKAT: func(s *supervisor, c *notify.Call) notify.Reply {
			return s.readLink(c, int32(c.Args[0]), c.Args[1], c.Args[2], c.Args[3])
		},
		unix.SYS_FACCESSAT: func(s *supervisor, c *notify.Call) notify.Reply {
			return s.access(c, int32(c.Args[0]), c.Args[1], uint32(c.Args[2]))
		},
		unix.SYS_FACCESSAT2: func(s *supervisor, c *notify.Call) notify.Reply {
			return s.access(c, int32(c.Args[0]), c.Args[1], uint32(c.Args[2]))
		},
	})
}

// The device's node, and where sysfs has what is about RDMA. Both are in the tree of a
// Server under their own names.
const (
	devices = "/dev/infiniband"
	node    = devices + "/uverbs0"
	classes = "/sys/class/infiniband" // and infiniband_verbs and others
)

// name is the path that a program names, made absolute.
func (s *supervisor) name(tid int, dir int32, at uint64) (string, error) {
	path, err := process(tid).text(at)
	if err != nil || path == "" || filepath.IsAbs(path) {
		return filepath.Clean(path), err
	}
	base := fmt.Sprintf("/proc/%d/cwd", tid)
	if dir != unix.AT_FDCWD {
		base = fmt.Sprintf("/proc/%d/fd/%d", tid, dir)
	}
	base, err = os.Readlink(base)
	return strings.TrimPrefix(filepath.Join(base, path), s.Dir), err // of a folder of the tree, too
}

// place is the file of the tree that stands for a path, "" if that is not about RDMA.
func (s *supervisor) place(tid int, dir int32, at uint64) string {
	name, err := s.name(tid, dir, at)
	if err != nil || name != devices && !strings.HasPrefix(name, devices+"/") && !strings.HasPrefix(name, classes) {
		return ""
	}
	return filepath.Join(s.Dir, name)
}

func (s *supervisor) openAt(c *notify.Call, dir int32, at uint64, flags int) notify.Reply {
	place := s.place(c.TID, dir, at)
	switch {
	case place == "":
		return notify.GoOn
	case place == filepath.Join(s.Dir, node):
		return s.openDevice(c, flags)
	case flags&unix.O_ACCMODE != unix.O_RDONLY:
		return notify.Fails(unix.EACCES)
	}
	fd, err := unix.Open(place, flags&^(unix.O_CREAT|unix.O_TRUNC)|unix.O_CLOEXEC, 0)
	if err != nil {
		return fails(err)
	}
	defer unix.Close(fd)
	number, err := c.Give(fd, flags&unix.O_CLOEXEC)
	if err != nil {
		return fails(err)
	}
	return notify.Value(int64(number))
}

// openAt2 answers openat2. What is wrong with the structure the kernel says, which looks at
// it before it looks for the file.
func (s *supervisor) openAt2(c *notify.Call, dir int32, at, how, size uint64) notify.Reply {
	b := make([]byte, unix.SizeofOpenHow)
	if size != uint64(len(b)) || process(c.TID).read(how, b) != nil || s.place(c.TID, dir, at) == "" {
		return notify.GoOn
	}
	h := structOf[unix.OpenHow](b)
	if h.Resolve != 0 {
		s.logf("openat2 of a file about RDMA with restrictions %#x on its path", h.Resolve)
		return notify.Fails(unix.EOPNOTSUPP)
	}
	return s.openAt(c, dir, at, int(h.Flags))
}

// filled answers a call that fills a structure of the program's.
func filled(c *notify.Call, at uint64, b []byte, err error) notify.Reply {
	if err == nil {
		err = process(c.TID).write(at, b)
	}
	if err != nil {
		return fails(err)
	}
	return notify.Value(0)
}

func (s *supervisor) fstat(c *notify.Call, fd int32, to uint64) notify.Reply {
	if s.file(c.TID, fd) == nil {
		return notify.GoOn
	}
	st := nodeStat()
	return filled(c, to, bytesOf(&st), nil)
}

func nodeStat() unix.Stat_t {
	return unix.Stat_t{Mode: unix.S_IFCHR | 0o666, Rdev: unix.Mkdev(deviceMajor, deviceMinor), Nlink: 1, Blksize: pageSize}
}

func (s *supervisor) stat(c *notify.Call, dir int32, at, to uint64, flags int) notify.Reply {
	if s.names(c, at, flags) {
		return s.fstat(c, dir, to)
	}
	place := s.place(c.TID, dir, at)
	if place == "" {
		return notify.GoOn
	}
	st := nodeStat()
	var err error
	if place != filepath.Join(s.Dir, node) {
		err = unix.Fstatat(unix.AT_FDCWD, place, &st, flags&unix.AT_SYMLINK_NOFOLLOW)
	}
	return filled(c, to, bytesOf(&st), err)
}

// names says whether a call is about a descriptor in place of a path.
func (s *supervisor) names(c *notify.Call, at uint64, flags int) bool {
	if flags&unix.AT_EMPTY_PATH == 0 {
		return false
	}
	path, err := process(c.TID).text(at)
	return at == 0 || err == nil && path == ""
}

func (s *supervisor) statX(c *notify.Call, dir int32, at uint64, flags, mask int, to uint64) notify.Reply {
	isNode := s.names(c, at, flags)
	if isNode && s.file(c.TID, dir) == nil {
		return notify.GoOn
	}
	place := filepath.Join(s.Dir, node)
	if !isNode {
		place = s.place(c.TID, dir, at)
	}
	if place == "" {
		return notify.GoOn
	}
	var st unix.Statx_t
	err := unix.Statx(unix.AT_FDCWD, place, flags&^unix.AT_EMPTY_PATH, mask, &st)
	if place == filepath.Join(s.Dir, node) {
		st.Mode, st.Rdev_major, st.Rdev_minor = unix.S_IFCHR|0o666, deviceMajor, deviceMinor
	}
	return filled(c, to, bytesOf(&st), err)
}

func (s *supervisor) readLink(c *notify.Call, dir int32, at, to, size uint64) notify.Reply {
	place := s.place(c.TID, dir, at)
	if place == "" {
		return notify.GoOn
	}
	target, err := os.Readlink(place)
	b := []byte(target)
	if uint64(len(b)) > size {
		b = b[:size]
	}
	if err == nil {
		err = process(c.TID).write(to, b)
	}
	if err != nil {
		return fails(err)
	}
	return notify.Value(int64(len(b)))
}

func (s *supervisor) access(c *notify.Call, dir int32, at uint64, mode uint32) notify.Reply {
	place := s.place(c.TID, dir, at)
	if place == "" {
		return notify.GoOn
	}
	if err := unix.Access(place, mode); err != nil {
		return fails(err)
	}
	return notify.Value(0)
}
