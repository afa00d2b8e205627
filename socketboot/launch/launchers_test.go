package launch

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/purerdma/purerdma/internal/launchtest"
	"github.com/purerdma/purerdma/socketboot"
	"github.com/purerdma/purerdma/socketboot/bootstrap"
)

// launchedVariable makes a copy of the test binary a rank that a launcher has started.
const launchedVariable = "PURERDMA_LAUNCH_TEST"

// launched finds out who it is, meets the others and says who they say they are.
func launched() int {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	info, err := Find(Args{}, os.Getenv)
	if err != nil {
		fmt.Println(err)
		return 1
	}
	job, err := info.Meet(ctx, bootstrap.Config{Net: socketboot.Net{Bind: netip.MustParseAddrPort("127.0.0.1:0")}})
	if err != nil {
		fmt.Println(err)
		return 1
	}
	all, err := job.AllGather(ctx, fmt.Appendf(nil, "%d/%d", info.Rank, info.LocalRank))
	if err = errors.Join(err, job.Close()); err != nil {
		fmt.Println(err)
		return 1
	}
	fmt.Printf("%s: %d of %d: %s\n", info.Launcher, info.Rank, info.Size, all)
	return 0
}

// Real launchers, by an address and by a file. torchrun says the address itself.
func TestLaunchers(t *testing.T) {
	for _, l := range launchtest.All {
		for _, how := range []string{"address", "file"} {
			t.Run(l.Name+" "+how, func(t *testing.T) {
				env := []string{launchedVariable + "=1"}
				switch {
				case l.Name == "torchrun":
					if how == "file" {
						t.Skip("it says an address")
					}
				case how == "file":
					env = append(env, "PURERDMA_ID_FILE="+filepath.Join(t.TempDir(), "id"))
				default:
					ln, err := net.Listen("tcp", "127.0.0.1:0")
					if err != nil {
						t.Fatal(err)
					}
					_ = ln.Close() // its port is free for rank 0
					env = append(env, "PURERDMA_ROOT="+ln.Addr().String())
				}
				ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
				defer cancel()
				out, text, err := l.Run(ctx, t, 4, env, os.Args[0])
				if err != nil {
					t.Fatalf("%v: %s%s", err, out, text)
				}
				for rank := range 4 {
					if want := fmt.Sprintf("%s: %d of 4: [0/0 1/1 2/2 3/3]", l.Name, rank); strings.Count(string(out), want+"\n") != 1 {
						t.Errorf("rank %d: want %q once in %s%s", rank, want, out, text)
					}
				}
			})
		}
	}
}
