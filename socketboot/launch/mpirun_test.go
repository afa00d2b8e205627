package launch

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

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

// A real mpirun (Open MPI's), by an address and by a file.
func TestMPIRun(t *testing.T) {
	mpirun, err := exec.LookPath("mpirun")
	if err != nil {
		t.Skip("no mpirun here; Debian's is in openmpi-bin")
	}
	if out, err := exec.CommandContext(t.Context(), mpirun, "--version").CombinedOutput(); err != nil || !strings.Contains(string(out), "Open MPI") {
		t.Skipf("mpirun is not Open MPI's: %s, %v", out, err)
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	if err := ln.Close(); err != nil { // its port is free for rank 0
		t.Fatal(err)
	}
	for name, where := range map[string]string{
		"address": "PURERDMA_ROOT=" + ln.Addr().String(),
		"file":    "PURERDMA_ID_FILE=" + filepath.Join(t.TempDir(), "id"),
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
			defer cancel()
			cmd := exec.CommandContext(ctx, mpirun, "--allow-run-as-root", "--oversubscribe", "--bind-to", "none", "-np", "4", "-x", where, "-x", launchedVariable+"=1", os.Args[0])
			out, err := cmd.CombinedOutput()
			if err != nil {
				t.Fatalf("%v: %s", err, out)
			}
			said := strings.Split(strings.TrimSpace(string(out)), "\n")
			slices.Sort(said)
			for rank := range 4 {
				if want := fmt.Sprintf("Open MPI: %d of 4: [0/0 1/1 2/2 3/3]", rank); rank >= len(said) || said[rank] != want {
					t.Errorf("rank %d: %q, want %q", rank, said, want)
				}
			}
		})
	}
}
