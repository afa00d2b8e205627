package main

import (
	"errors"
	"fmt"
	"os"

	"github.com/purerdma/purerdma/socketboot/launch"
)

func main() { os.Exit(run(os.Args[1:])) }

// run is the command at whichever rank this process is. Only one of them may speak to standard output.
func run(args []string) int {
	info, err := launch.Find(launch.Args{}, os.Getenv)
	if errors.Is(err, launch.ErrNotLaunched) {
		return (&tool{args: args}).command().Main(args, os.Stdout, os.Stderr)
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "error: %v\n", err)
		return 1
	}
	out := os.Stdout
	if info.Rank != 0 {
		if out, err = os.OpenFile(os.DevNull, os.O_WRONLY, 0); err != nil {
			fmt.Fprintf(os.Stderr, "error: %v\n", err)
			return 1
		}
		defer func() { _ = out.Close() }()
	}
	return (&tool{launched: &info}).command().Main(args, out, os.Stderr)
}
