package mlx5model

import (
	"github.com/purerdma/purerdma/ibverbs/internal/mlx5model/internal/notify"
	"golang.org/x/sys/unix"
)

var oldCalls = map[int]func(*supervisor, *notify.Call) notify.Reply{
	unix.SYS_FSTATAT: func(s *supervisor, c *notify.Call) notify.Reply {
		return s.stat(c, int32(c.Args[0]), c.Args[1], c.Args[2], int(c.Args[3]))
	},
}
