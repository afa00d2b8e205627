// Command supervise runs a program, unmodified and whatever it is written in, on the
// model of a ConnectX adapter:
//
//	supervise [-trap] [-ethernet] ibv_devinfo -v
//	supervise sh -c 'ibv_rc_pingpong & sleep 1; ibv_rc_pingpong localhost'
//
// It ends with the status of the program, or 125 if it could not run it.
package main

import (
	"flag"
	"fmt"
	"os"

	"github.com/purerdma/purerdma/ibverbs/internal/mlx5model"
)

func main() { os.Exit(run(os.Args[1:])) }

// failed is the status for a failure of the command itself, as that of env.
const failed = 125

func run(args []string) int {
	complain := func(err error) int {
		fmt.Fprintln(os.Stderr, "supervise:", err)
		return failed
	}
	flags := flag.NewFlagSet("supervise", flag.ContinueOnError)
	dir := flags.String("model", "", "`folder` of a model that another process serves; by default there is one of its own")
	trap := flags.Bool("trap", false, "catch each store into a page of doorbells")
	ethernet := flags.Bool("ethernet", false, "give the model of its own an Ethernet port, with addresses of RoCE")
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
	if *dir == "" {
		own, err := os.MkdirTemp("", "mlx5")
		if err != nil {
			return complain(err)
		}
		defer os.RemoveAll(own)
		s, err := mlx5model.Serve(mlx5model.New(mlx5model.Config{Ethernet: *ethernet, Fault: tell}), own)
		if err != nil {
			return complain(err)
		}
		defer s.Close()
		*dir = own
	}
	status, err := mlx5model.Supervised{Dir: *dir, Trap: *trap, Log: tell}.Supervise(flags.Args())
	if err != nil {
		return complain(err)
	}
	return status
}
