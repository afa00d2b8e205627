package launch

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/purerdma/purerdma/internal/leaktest"
	"github.com/purerdma/purerdma/socketboot"
	"github.com/purerdma/purerdma/socketboot/bootstrap"
)

func TestMain(m *testing.M) {
	if os.Getenv(launchedVariable) != "" {
		os.Exit(launched())
	}
	leaktest.Main(m)
}

type vars map[string]string

func (v vars) get(name string) string { return v[name] }

func TestFind(t *testing.T) {
	for name, c := range map[string]struct {
		args Args
		env  vars
		want string // launcher rank/size local root file
		why  string
	}{
		"torchrun": {env: vars{"RANK": "3", "WORLD_SIZE": "8", "LOCAL_RANK": "1", "MASTER_ADDR": "node1", "MASTER_PORT": "29500"},
			want: "torchrun 3/8 1 node1:29500 ", why: "RANK and WORLD_SIZE"},
		"torchrun listens itself": {env: vars{"RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "::1", "MASTER_PORT": "29500",
			"TORCHELASTIC_USE_AGENT_STORE": "True"}, want: "torchrun 0/2 -1 [::1]:29501 ", why: "torchrun listens there itself"},
		"Open MPI inside Slurm": {env: vars{"OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_SIZE": "4", "OMPI_COMM_WORLD_LOCAL_RANK": "1",
			"SLURM_PROCID": "0", "SLURM_NTASKS": "2", "PURERDMA_ID_FILE": "/shared/id.17"},
			want: "Open MPI 1/4 1  /shared/id.17", why: "SLURM_PROCID=0 of Slurm is not used"},
		"Slurm": {env: vars{"SLURM_PROCID": "5", "SLURM_NTASKS": "9", "SLURM_STEP_NUM_TASKS": "6", "SLURM_LOCALID": "0",
			"NCCL_COMM_ID": "10.0.0.1:5000"}, want: "Slurm 5/6 0 10.0.0.1:5000 ", why: "SLURM_STEP_NUM_TASKS"},
		"PMI": {env: vars{"PMI_RANK": "1", "PMI_SIZE": "2", "MPI_LOCALRANKID": "1", "PURERDMA_ROOT": "h:1"}, want: "PMI 1/2 1 h:1 "},
		"arguments before all": {args: Args{Rank: "1", Size: "2", Root: "a:1", IDFile: "f"},
			env: vars{"RANK": "0", "WORLD_SIZE": "9", "PURERDMA_ROOT": "b:2"}, want: "arguments 1/2 -1 a:1 "},
		"alone": {env: vars{"RANK": "0", "WORLD_SIZE": "1"}, want: "torchrun 0/1 -1  "},
	} {
		i, err := Find(c.args, c.env.get)
		got := fmt.Sprintf("%s %d/%d %d %s %s", i.Launcher, i.Rank, i.Size, i.LocalRank, i.Root, i.IDFile)
		if err != nil || got != c.want || !strings.Contains(strings.Join(i.Why, "; "), c.why) {
			t.Errorf("%s: got %q, want %q; %q; %v", name, got, c.want, i.Why, err)
		}
	}
}

func TestFaultsNameTheVariable(t *testing.T) {
	for _, c := range []struct {
		name string
		env  vars
	}{
		{"WORLD_SIZE", vars{"RANK": "0"}},
		{"WORLD_SIZE", vars{"RANK": "0", "WORLD_SIZE": "0"}},
		{"RANK", vars{"RANK": "2", "WORLD_SIZE": "2"}},
		{"RANK", vars{"RANK": "x", "WORLD_SIZE": "2"}},
		{"LOCAL_RANK", vars{"RANK": "0", "WORLD_SIZE": "2", "LOCAL_RANK": "-1"}},
		{"SLURM_NTASKS", vars{"SLURM_PROCID": "0"}},
		{"MASTER_ADDR", vars{"RANK": "0", "WORLD_SIZE": "2", "MASTER_PORT": "1"}},
		{"MASTER_PORT", vars{"RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "h"}},
		{"MASTER_PORT", vars{"RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "h", "MASTER_PORT": "0"}},
		{"NCCL_COMM_ID", vars{"PMI_RANK": "0", "PMI_SIZE": "2", "NCCL_COMM_ID": "host"}},
		{"NCCL_COMM_ID", vars{"PMI_RANK": "0", "PMI_SIZE": "2", "NCCL_COMM_ID": "host:0"}},
		{"PURERDMA_ROOT", vars{"PMI_RANK": "0", "PMI_SIZE": "2", "PURERDMA_ROOT": "10.0.0.1:0"}},
		{"PURERDMA_ROOT", vars{"PMI_RANK": "0", "PMI_SIZE": "2", "PURERDMA_ROOT": "10.0.0.1:65536"}},
		{"PURERDMA_ROOT", vars{"PMI_RANK": "0", "PMI_SIZE": "2", "PURERDMA_ROOT": "::1:5"}},
		{"PURERDMA_ROOT", vars{"OMPI_COMM_WORLD_RANK": "0", "OMPI_COMM_WORLD_SIZE": "2"}},
	} {
		_, err := Find(Args{}, c.env.get)
		if e := (*VariableError)(nil); !errors.As(err, &e) || e.Name != c.name || !strings.Contains(err.Error(), c.name) {
			t.Errorf("%v: got %v, want %s", c.env, err, c.name)
		}
	}
	if _, err := Find(Args{}, vars{}.get); !errors.Is(err, ErrNotLaunched) {
		t.Error(err)
	}
}

func meetAll(t *testing.T, n int, common vars) (errs []error) {
	errs = make([]error, n)
	var all sync.WaitGroup
	for rank := range n {
		all.Go(func() {
			env := vars{"RANK": fmt.Sprint(rank), "WORLD_SIZE": fmt.Sprint(n)}
			for k, v := range common {
				env[k] = v
			}
			i, err := Find(Args{}, env.get)
			if err != nil {
				errs[rank] = err
				return
			}
			network := socketboot.Net{Bind: netip.MustParseAddrPort("127.0.0.1:0")}
			m, err := i.Meet(t.Context(), bootstrap.Config{Net: network, Timeout: 20 * time.Second})
			if err != nil {
				errs[rank] = err
				return
			}
			errs[rank] = m.Barrier(t.Context())
			_ = m.Close()
		})
	}
	all.Wait()
	return errs
}

func TestMeetByAddress(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := ln.Addr().String()
	_ = ln.Close()
	for rank, err := range meetAll(t, 3, vars{"NCCL_COMM_ID": addr}) {
		if err != nil {
			t.Errorf("rank %d: %v", rank, err)
		}
	}
}

func TestMeetByFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "id")
	for rank, err := range meetAll(t, 3, vars{"PURERDMA_ID_FILE": file}) {
		if err != nil {
			t.Errorf("rank %d: %v", rank, err)
		}
	}
	if left, _ := os.ReadDir(filepath.Dir(file)); len(left) != 0 {
		t.Errorf("left: %v", left)
	}
}

func TestFileOfAnotherJob(t *testing.T) {
	file := filepath.Join(t.TempDir(), "id")
	if err := os.WriteFile(file, []byte("old"), 0o600); err != nil {
		t.Fatal(err)
	}
	i := Info{Rank: 0, Size: 2, IDFile: file}
	if _, err := i.Meet(t.Context(), bootstrap.Config{}); !errors.Is(err, fs.ErrExist) {
		t.Error(err)
	}
	i.Rank = 1
	if _, err := i.Meet(t.Context(), bootstrap.Config{}); !errors.Is(err, bootstrap.ErrID) || !strings.Contains(err.Error(), file) {
		t.Error(err)
	}
	i.IDFile = filepath.Join(t.TempDir(), "never")
	if _, err := i.Meet(t.Context(), bootstrap.Config{Timeout: 30 * time.Millisecond}); !errors.Is(err, context.DeadlineExceeded) {
		t.Error(err)
	}
}

// Rank 0 has written the file and died: the others say so, and soon.
func TestRankZeroIsGone(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_ = ln.Close()
	file := filepath.Join(t.TempDir(), "id")
	if err := publish(file, bootstrap.IDFor(netip.MustParseAddrPort(ln.Addr().String()), 1)); err != nil {
		t.Fatal(err)
	}
	network := socketboot.Net{Bind: netip.MustParseAddrPort("127.0.0.1:0"), Retry: socketboot.Retry{Unit: time.Millisecond}}
	_, err = Info{Rank: 1, Size: 2, IDFile: file}.Meet(t.Context(), bootstrap.Config{Net: network})
	if e := (*bootstrap.RankError)(nil); !errors.As(err, &e) || e.Rank != 0 || !errors.Is(err, bootstrap.ErrNoRoot) || errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v", err)
	}
}

// Why rank 0 does not wait any longer is told at once.
func TestMeetingGivenUp(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	network := socketboot.Net{Bind: netip.MustParseAddrPort("127.0.0.1:0")}
	why := errors.New("rank 2 could not be started")
	cancel(why)
	for rank := range 2 {
		_, err := Info{Rank: rank, Size: 3, IDFile: filepath.Join(t.TempDir(), "id")}.Meet(ctx, bootstrap.Config{Net: network})
		if !errors.Is(err, why) || !errors.Is(err, context.Canceled) {
			t.Errorf("rank %d: got %v", rank, err)
		}
	}
}

// Without a function the process's environment counts; an Info that says nothing about the meeting is refused before a file is made.
func TestNothingGiven(t *testing.T) {
	t.Setenv("PURERDMA_RANK", "1")
	t.Setenv("PURERDMA_SIZE", "3")
	t.Setenv("PURERDMA_ROOT", "192.0.2.1:1")
	if i, err := Find(Args{}, nil); err != nil || i.Rank != 1 || i.Size != 3 || i.Root != "192.0.2.1:1" {
		t.Errorf("%+v, %v", i, err)
	}
	for rank := range 2 {
		if _, err := (Info{Rank: rank, Size: 2}).Meet(t.Context(), bootstrap.Config{}); err == nil || !strings.Contains(err.Error(), "IDFile") {
			t.Errorf("rank %d: %v", rank, err)
		}
	}
}
