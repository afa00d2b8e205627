// Package launch finds out from a program's arguments and environment which rank of which job it is, and where the job meets.
//
// # Rank and size
//
// The first of these that sets a rank counts, whole; the others are only noted in [Info.Why]:
//
//	source      rank                  size                   rank on its host
//	arguments   Args.Rank             Args.Size              Args.LocalRank
//	purerdma    PURERDMA_RANK         PURERDMA_SIZE          PURERDMA_LOCAL_RANK
//	torchrun    RANK                  WORLD_SIZE             LOCAL_RANK
//	Open MPI    OMPI_COMM_WORLD_RANK  OMPI_COMM_WORLD_SIZE   OMPI_COMM_WORLD_LOCAL_RANK
//	PMI         PMI_RANK              PMI_SIZE               MPI_LOCALRANKID
//	Slurm       SLURM_PROCID          SLURM_STEP_NUM_TASKS,  SLURM_LOCALID
//	                                  else SLURM_NTASKS
//
// Tests start jobs by mpirun of Open MPI and mpiexec.hydra of MPICH (PMI), and with PURERDMA_LAUNCHERS=all by srun on a cluster of one
// node and torchrun --standalone, where these are installed. Clusters of several nodes, and other starters with PMI, are untested.
//
// # Where the job meets
//
// No launcher but torchrun says that, so under mpirun and srun the user does, with an option that reaches all ranks
// (mpirun -x, srun --export). The first that is set counts:
//
//	Args.Root, PURERDMA_ROOT, NCCL_COMM_ID   host:port at which rank 0 listens
//	MASTER_ADDR and MASTER_PORT              the same; with TORCHELASTIC_USE_AGENT_STORE=True the port after it, since torchrun
//	                                         itself listens at MASTER_PORT
//	Args.IDFile, PURERDMA_ID_FILE            a file on a file system that all ranks see: rank 0 listens at any port and writes the
//	                                         job's id there, the others wait for it. It must not exist before, so its name holds
//	                                         the job's number; rank 0 removes it when all have met
//
// With an address the magic of the job is NCCL's constant, as in NCCL with NCCL_COMM_ID: it keeps no other job out. With a file it is
// random.
package launch

import (
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
)

// Args is what a program's own options say, as text; "" = not given.
type Args struct {
	Rank, Size, LocalRank string
	Root                  string // host:port
	IDFile                string
}

// Info is which rank this process is, and where the job meets.
type Info struct {
	Launcher   string // a source of the table, "torchrun"
	Rank, Size int
	LocalRank  int    // on its host; -1 = not known
	Root       string // host:port; "" = not known
	IDFile     string // counts if Root is ""
	// Why says what was found and what was not used, a sentence each.
	Why []string
}

// ErrNotLaunched is in the error when nothing says which rank this is.
var ErrNotLaunched = errors.New("nothing says which rank this process is")

// VariableError is a variable, or an argument, that is missing or cannot be understood.
type VariableError struct {
	Name  string // "WORLD_SIZE"
	Value string
	Want  string // "a number from 1 on"
}

func (e *VariableError) Error() string {
	if e.Value == "" {
		return fmt.Sprintf("launch: %s is not set, want %s", e.Name, e.Want)
	}
	return fmt.Sprintf("launch: %s is %q, want %s", e.Name, e.Value, e.Want)
}

// source is one line of the table.
type source struct {
	name        string
	rank, local string
	size        []string
}

var sources = []source{
	{"arguments", "the rank argument", "the local rank argument", []string{"the size argument"}},
	{"purerdma", "PURERDMA_RANK", "PURERDMA_LOCAL_RANK", []string{"PURERDMA_SIZE"}},
	{"torchrun", "RANK", "LOCAL_RANK", []string{"WORLD_SIZE"}},
	{"Open MPI", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_LOCAL_RANK", []string{"OMPI_COMM_WORLD_SIZE"}},
	{"PMI", "PMI_RANK", "MPI_LOCALRANKID", []string{"PMI_SIZE"}},
	{"Slurm", "SLURM_PROCID", "SLURM_LOCALID", []string{"SLURM_STEP_NUM_TASKS", "SLURM_NTASKS"}},
}

// Find reads args and the environment (nil is os.Getenv). It opens nothing. The error is a [VariableError], or [ErrNotLaunched].
func Find(args Args, getenv func(string) string) (Info, error) {
	if getenv == nil {
		getenv = os.Getenv
	}
	get := func(name string) string {
		switch name {
		case "the rank argument":
			return args.Rank
		case "the size argument":
			return args.Size
		case "the local rank argument":
			return args.LocalRank
		}
		return strings.TrimSpace(getenv(name))
	}
	var info Info
	for _, s := range sources {
		text := get(s.rank)
		if text == "" {
			continue
		}
		if info.Launcher != "" {
			info.note("%s=%s of %s is not used", s.rank, text, s.name)
			continue
		}
		if err := info.take(s, get); err != nil {
			return Info{}, err
		}
	}
	if info.Launcher == "" {
		return Info{}, fmt.Errorf("launch: %w: start it with torchrun, mpirun or srun, or set PURERDMA_RANK and PURERDMA_SIZE", ErrNotLaunched)
	}
	return info, info.findRoot(args, get)
}

func (i *Info) note(format string, a ...any) { i.Why = append(i.Why, fmt.Sprintf(format, a...)) }

func (i *Info) take(s source, get func(string) string) (err error) {
	i.Launcher, i.LocalRank = s.name, -1
	sizeName := s.size[0]
	for _, n := range s.size[1:] {
		if get(sizeName) == "" {
			sizeName = n
		}
	}
	if i.Size, err = number(sizeName, get(sizeName), 1, 1<<16); err != nil {
		return err
	}
	if i.Rank, err = number(s.rank, get(s.rank), 0, i.Size-1); err != nil {
		return err
	}
	i.note("rank %d of %d: %s and %s of %s", i.Rank, i.Size, s.rank, sizeName, s.name)
	if text := get(s.local); text != "" {
		if i.LocalRank, err = number(s.local, text, 0, i.Size-1); err != nil {
			return err
		}
	}
	return nil
}

func number(name, text string, least, most int) (int, error) {
	n, err := strconv.Atoi(text)
	if err != nil || n < least || n > most {
		return 0, &VariableError{name, text, fmt.Sprintf("a number from %d to %d", least, most)}
	}
	return n, nil
}

func (i *Info) findRoot(args Args, get func(string) string) error {
	for _, c := range []struct{ name, value string }{{"the root argument", args.Root}, {"PURERDMA_ROOT", get("PURERDMA_ROOT")},
		{"NCCL_COMM_ID", get("NCCL_COMM_ID")}} {
		if c.value == "" {
			continue
		}
		if err := checkHostPort(c.value); err != nil {
			return &VariableError{c.name, c.value, "host:port, with brackets around an IPv6 address"}
		}
		i.Root = c.value
		i.note("the job meets at %s: %s", c.value, c.name)
		return nil
	}
	if host, port := get("MASTER_ADDR"), get("MASTER_PORT"); host != "" || port != "" {
		if host == "" {
			return &VariableError{"MASTER_ADDR", "", "a host, since MASTER_PORT is set"}
		}
		n, err := number("MASTER_PORT", port, 1, 1<<16-2)
		if err != nil {
			return err
		}
		why := "MASTER_ADDR and MASTER_PORT"
		if get("TORCHELASTIC_USE_AGENT_STORE") == "True" {
			n++
			why += ", whose next port it is: torchrun listens there itself"
		}
		i.Root = net.JoinHostPort(host, strconv.Itoa(n))
		i.note("the job meets at %s: %s", i.Root, why)
		return nil
	}
	for _, c := range []struct{ name, value string }{{"the id file argument", args.IDFile}, {"PURERDMA_ID_FILE", get("PURERDMA_ID_FILE")}} {
		if c.value != "" {
			i.IDFile = c.value
			i.note("the job's id is in %s: %s", c.value, c.name)
			return nil
		}
	}
	if i.Size == 1 {
		return nil
	}
	return &VariableError{"PURERDMA_ROOT", "", fmt.Sprintf("host:port for rank 0 to listen at, the same at all ranks (%s does not say where "+
		"its job meets), or PURERDMA_ID_FILE, a new file that all ranks see", i.Launcher)}
}

func checkHostPort(s string) error {
	host, port, err := net.SplitHostPort(s)
	if err != nil {
		return err
	}
	if n, err := strconv.Atoi(port); err != nil || n < 1 || n > 65535 || host == "" {
		return errors.New("no host or port")
	}
	return nil
}
