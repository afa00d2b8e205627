package mlx5model

import (
	stdcontext "context"
	"io/fs"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"testing/fstest"

	"github.com/purerdma/purerdma/ibverbs"
	"github.com/purerdma/purerdma/ibverbs/driver"
	"github.com/purerdma/purerdma/ibverbs/internal/kernel"
	"github.com/purerdma/purerdma/ibverbs/internal/mlx5"
	"github.com/purerdma/purerdma/internal/hwtest"
	"github.com/purerdma/purerdma/internal/pingpong"
)

// ourDriver is the driver of package mlx5 in a world whose only device is the model. What
// the environment would ask for is asked for here.
func ourDriver(t testing.TB, m *Model, cqe int) driver.Driver {
	t.Helper()
	sys := fstest.MapFS{}
	for name, text := range sysfs() {
		sys[filepath.ToSlash(name)] = &fstest.MapFile{Data: []byte(text + "\n")}
	}
	sys["class/infiniband/mlx5_0/device/driver"] = &fstest.MapFile{Data: []byte("../../../bus/pci/drivers/mlx5_core"), Mode: fs.ModeSymlink}
	return kernel.New(kernel.World{
		Kernel:        NewLocal(m),
		Sys:           sys,
		Dev:           fstest.MapFS{"infiniband/uverbs0": &fstest.MapFile{}},
		DevDir:        "/dev",
		Proc:          fstest.MapFS{},
		Netlink:       func(uint16, bool, []byte) ([][]byte, error) { return nil, syscall.EPROTONOSUPPORT },
		Uevents:       func(stdcontext.Context, func([]byte)) error { return syscall.EPERM },
		InterfaceName: func(int) string { return "" },
		NetDevice:     func(string) (string, error) { return "", syscall.ENODEV },
	}, mlx5.Provider{Allowed: true, CQESize: cqe})
}

// TestPingpongWithOurs has rdma-core's programs on libmlx5 at one end, and our driver at the
// other.
func TestPingpongWithOurs(t *testing.T) {
	l := newLab(t, "ibv_rc_pingpong")
	for _, v := range l.Env(l.library) {
		name, value, _ := strings.Cut(v, "=")
		t.Setenv(name, value)
	}
	for i, s := range []pingpong.Session{
		{Kind: pingpong.RC, Size: 16, Rounds: 60, Depth: 20, Events: true},
		{Kind: pingpong.RC, Size: 4096, Rounds: 60, Depth: 20},
		{Kind: pingpong.UC, Size: 4096, Rounds: 60, Depth: 20},
	} {
		if testing.Short() && i >= 1 {
			return
		}
		for _, serves := range []bool{false, true} {
			t.Run(s.Kind.Program()+map[bool]string{false: ", client", true: ", server"}[serves], func(t *testing.T) {
				dev, err := ibverbs.Open("mlx5_0", ibverbs.WithDrivers(ourDriver(t, l.m, 0)))
				if err != nil {
					t.Fatal(err)
				}
				defer func() {
					if err := dev.Close(); err != nil {
						t.Error(err)
					}
				}()
				gids, err := dev.GIDs(1)
				if err != nil || len(gids) == 0 {
					t.Fatalf("%d GIDs, %v", len(gids), err)
				}
				at := hwtest.Place{Device: "mlx5_0", Port: 1, GID: gids[0], MTU: ibverbs.MTU4096, Link: ibverbs.LinkInfiniBand}
				s.Run(t, dev, at, at, serves)
			})
		}
	}
}
