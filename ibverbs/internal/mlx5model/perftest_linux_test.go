package mlx5model

import (
	"fmt"
	"os"
	"runtime"
	"strings"
	"testing"
)

// perftestDaily is what runs each time, by link layer; words with a sign of equality are of the environment. The first
// rows are those of the short way. 70,000 are more entries than their index counts. ib_send_lat, ib_read_lat and
// ib_atomic_lat with events are nowhere: they arm their queue before they take what the event was about, so that the
// next event may come before a completion does, and they look once for each.
var perftestDaily = [2][]string{
	{
		"ib_write_bw -n 20 -q 4", "ib_read_lat -n 20", "ib_send_bw -n 20 -e", "ib_atomic_bw -n 20",
		"ib_write_lat -n 20 -I 64 -s 64", "ib_send_lat -n 20 -c UC", "ib_read_bw -n 8 -s 1048576 -e", "ib_atomic_lat -n 20",
		"ib_send_bw -n 20 -c UD", "ib_send_bw -n 20 -r 64 --use-srq",
		"ib_write_bw -n 32 -q 16 -s 4096", "ib_read_bw -n 128 -l 64 -s 64", "MLX5_CQE_SIZE=128 ib_send_bw -n 20", "ib_write_bw -n 70000 -s 8",
	},
	{"ib_write_bw -n 20 -q 4", "ib_send_lat -n 20 -c UD", "ib_read_bw -n 128 -l 64 -s 64", "ib_atomic_lat -n 20", "MLX5_CQE_SIZE=128 ib_write_lat -n 20"},
}

// perftestAll is all rows, made of parts.
func perftestAll() (rows []string) {
	add := func(programs, format string, values ...any) {
		for p := range strings.FieldsSeq(programs) {
			if len(values) == 0 {
				rows = append(rows, fmt.Sprintf(format, "ib_"+p))
			}
			for _, v := range values {
				rows = append(rows, fmt.Sprintf(format, "ib_"+p, v))
			}
		}
	}
	const sized = "write_bw read_bw send_bw" // an atomic operation has its own size
	const bandwidth, latency = sized + " atomic_bw", "write_lat read_lat send_lat atomic_lat"
	add(bandwidth+" "+latency, "%s")
	add(sized+" write_lat read_lat send_lat", "%s -a -n 16")
	add(bandwidth, "%s -n 1000 -q %d", 1, 2, 4, 8, 16)
	add(bandwidth, "%s -n 4096 -l %d", 2, 16, 64)
	add(sized, "%s -n 4096 -s 64 -l %d", 2, 16, 64)
	add("write_bw send_bw write_lat send_lat", "%s -n 1000 -I %[2]d -s %[2]d", 8, 32, 64, 128)
	add("send_bw send_lat", "%s -n 1000 -s 4096 -r 64 --use-srq")
	add("send_bw", "%s -n 1000 -s 4096 -r 64 --use-srq -q %d", 4)
	add("write_bw send_bw write_lat send_lat", "%s -n 1000 -s 4096 -c UC")
	add("send_bw send_lat", "%s -n 1000 -s 1024 -c UD")
	add("read_bw send_bw atomic_bw", "%s -n 1000 -e")
	add(bandwidth+" "+latency, "MLX5_CQE_SIZE=128 %s -n 1000")
	add(sized, "%s -n 70000 -s 8")
	add("atomic_bw", "%s -n 70000")
	return rows
}

// TestPerftest runs the programs of perftest: some each time, at full counts and in all combinations with
// PURERDMA_PERFTEST=all.
func TestPerftest(t *testing.T) {
	for i, link := range [2]string{"InfiniBand", "Ethernet"} {
		rows := perftestDaily[i]
		switch how := os.Getenv("PURERDMA_PERFTEST"); {
		case how == "all":
			rows = perftestAll()
		case how != "":
			t.Fatalf("PURERDMA_PERFTEST is all, not %q", how)
		case testing.Short():
			rows = rows[:2*(2-i)]
		}
		l := newLab(t, i == 1, "ib_write_bw")
		for _, row := range rows {
			t.Run(link+"/"+row, func(t *testing.T) { l.perftest(t, row) })
		}
	}
}

// TestPerftestTrapped takes the index of entries past its end while stores into doorbells are caught, which takes some
// 2 ms for each: lists of 64 need few.
func TestPerftestTrapped(t *testing.T) {
	if runtime.GOARCH != "amd64" {
		t.Skip("stores are caught on amd64 only")
	}
	if testing.Short() {
		t.Skip("takes seconds")
	}
	rows := []string{"ib_write_bw -n 65600 -l 64 -s 8"}
	if os.Getenv("PURERDMA_PERFTEST") == "all" {
		rows = append(rows, "ib_read_bw -n 65600 -l 64 -s 8", "ib_send_bw -n 65600 -l 64 -s 8", "ib_atomic_bw -n 65600 -l 64")
	}
	l := newLab(t, false, "ib_write_bw")
	t.Setenv("MLX5MODEL_TRAP", "1")
	for _, row := range rows {
		t.Run(row, func(t *testing.T) { l.perftest(t, row) })
	}
}

// perftest runs a row between two processes. -F has it not ask about the processor's speed.
func (l *lab) perftest(t *testing.T, row string) {
	t.Helper()
	f := strings.Fields(row)
	if name, value, ok := strings.Cut(f[0], "="); ok {
		t.Setenv(name, value)
		f = f[1:]
	}
	contains(t, l.pair(t, f[0], append(f[1:], "-F")...), "#bytes #iterations")
}
