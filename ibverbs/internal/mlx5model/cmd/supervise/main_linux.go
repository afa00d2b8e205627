// Command supervise runs a program, unmodified and whatever it is written in, on the
// model of a ConnectX adapter:
//
//	supervise [-trap] [-ethernet] [-asleep] ibv_devinfo -v
//	supervise sh -c 'ibv_rc_pingpong & sleep 1; ibv_rc_pingpong localhost'
//
// It ends with the status of the program, or 125 if it could not run it. 124 is for a
// program that succeeded although it did what no correct program does, which is on
// standard error; a model that another process serves tells that process.
package main

import (
	"flag"
	"fmt"
	"os"
	"sync/atomic"

	"github.com/purerdma/purerdma/ibverbs/internal/mlx5model"
	"github.com/purerdma/purerdma/internal/tempdir"
)

func main() { os.Exit(run(os.Args[1:])) }

// Statuses that are not the program's: of a failure of the command itself, as that of
// env, and of a program with faults.
const (
	failed = 125
	faulty = 124
)

func run(args []string) int {
	complain := func(err error) int {
		fmt.Fprintln(os.Stderr, "supervise:", err)
		return failed
	}
	flags := flag.NewFlagSet("supervise", flag.ContinueOnError)
	dir := flags.String("model", "", "`folder` of a model that another process serves; by default there is one of its own")
	trap := flags.Bool("trap", false, "catch each store into a page of doorbells")
	ethernet := flags.Bool("ethernet", false, "give the model of its own an Ethernet port, with addresses of RoCE")
	asleep := flags.Bool("asleep", false, "have the model of its own execute nothing that is posted")
	flags.Usage = func() {
		fmt.Fprintln(flags.Output(), "usage: supervise [flags] program [arguments]")
		flags.PrintDefaults()
	}
	if err := flags.Parse(args); err != nil {
		return failed
	}
	if flags.NArg() == 0 {
		flags.Usage()
		return failed
	}
	tell := func(s string) { fmt.Fprintln(os.Stderr, "supervise:", s) }
	var faults atomic.Int64
	fault := func(s string) {
		faults.Add(1)
		tell("fault: " + s)
	}
	if *dir == "" {
		own, err := tempdir.Make("purerdma-supervise-")
		if err != nil {
			return complain(err)
		}
		defer own.Remove()
		s, err := mlx5model.Serve(mlx5model.New(mlx5model.Config{Ethernet: *ethernet, Asleep: *asleep, Fault: fault}), own.Path())
		if err != nil {
			return complain(err)
		}
		defer s.Close()
		*dir = own.Path()
	}
	status, err := mlx5model.Supervised{Dir: *dir, Trap: *trap, Log: tell}.Supervise(flags.Args())
	if err != nil {
		return complain(err)
	}
	if n := faults.Load(); n > 0 && status == 0 {
		tell(fmt.Sprintf("the program succeeded with faults: %d", n))
		return faulty
	}
	return status
}
