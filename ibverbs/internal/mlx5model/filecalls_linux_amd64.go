package mlx5model

import (
	"github.com/purerdma/purerdma/ibverbs/internal/mlx5model/internal/notify"
	"golang.org/x/sys/unix"
)

var oldCalls = map[int]func(*supervisor, *notify.Call) notify.Reply{
	unix.SYS_NEWFSTATAT: func(s *supervisor, c *notify.Call) notify.Reply {
		return s.stat(c, int32(c.Args[0]), c.Args[1], c.Args[2], int(c.Args[3]))
	},
	unix.SYS_OPEN: func(s *supervisor, c *notify.Call) notify.Reply {
		return s.openAt(c, unix.AT_FDCWD, c.Args[0], int(c.Args[1]))
	},
	unix.SYS_STAT: func(s *supervisor, c *notify.Call) notify.Reply {
		return s.stat(c, unix.AT_FDCWD, c.Args[0], c.Args[1], 0)
	},
	unix.SYS_LSTAT: func(s *supervisor, c *notify.Call) notify.Reply {
		return s.stat(c, unix.AT_FDCWD, c.Args[0], c.Args[1], unix.AT_SYMLINK_NOFOLLOW)
	},
	unix.SYS_READLINK: func(s *supervisor, c *notify.Call) notify.Reply {
		return s.readLink(c, unix.AT_FDCWD, c.Args[0], c.Args[1], c.Args[2])
	},
	unix.SYS_ACCESS: func(s *supervisor, c *notify.Call) notify.Reply {
		return s.access(c, unix.AT_FDCWD, c.Args[0], uint32(c.Args[1]))
	},
}
