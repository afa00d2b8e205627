package mlx5model

import (
	"strings"
	"testing"
)

// TestPerftest runs the programs of perftest. ib_send_lat with events is not among them: it
// arms its queue before it takes what the event was about, so that the next event may come
// before a completion does, and it looks once for each.
func TestPerftest(t *testing.T) {
	l := newLab(t, false, "ib_write_bw")
	for i, c := range []string{
		"ib_write_bw -n 20 -q 4", "ib_read_lat -n 20", "ib_send_bw -n 20 -e", "ib_atomic_bw -n 20",
		"ib_write_lat -n 20 -I 64 -s 64", "ib_send_lat -n 20 -c UC", "ib_read_bw -n 8 -s 1048576 -e", "ib_atomic_lat -n 20",
		"ib_send_bw -n 20 -c UD", "ib_send_bw -n 20 -r 64 --use-srq",
	} {
		if testing.Short() && i >= 4 {
			return
		}
		t.Run(c, func(t *testing.T) {
			f := strings.Fields(c)
			contains(t, l.pair(t, f[0], append(f[1:], "-F")...), "#bytes #iterations")
		})
	}
}
