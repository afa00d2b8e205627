package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"time"

	"github.com/purerdma/purerdma/socketboot/launch"
)

// crew is the ranks that this process, which is rank 0, has started on this machine.
type crew struct {
	info   launch.Info // of rank 0
	dir    string
	others []*exec.Cmd
	cancel context.CancelFunc
}

// patience is how long the others may take to end when rank 0 has failed, which they learn from it.
const patience = 5 * time.Second

// startCrew starts ranks 1 to n − 1 with a command line. They are killed when ctx ends.
func startCrew(ctx context.Context, n int, args []string, stderr io.Writer) (c *crew, err error) {
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("starting the ranks: %w", err)
	}
	dir, err := os.MkdirTemp("", "purerdma-sendrecv-")
	if err != nil {
		return nil, fmt.Errorf("starting the ranks: %w", err)
	}
	file := filepath.Join(dir, "id")
	ctx, cancel := context.WithCancel(ctx)
	c = &crew{info: launch.Info{Launcher: "sendrecv", Size: n, IDFile: file}, dir: dir, cancel: cancel}
	for rank := 1; rank < n; rank++ {
		cmd := exec.CommandContext(ctx, self, args...)
		at := strconv.Itoa(rank)
		cmd.Env = append(os.Environ(), "PURERDMA_RANK="+at, "PURERDMA_LOCAL_RANK="+at, "PURERDMA_SIZE="+strconv.Itoa(n), "PURERDMA_ROOT=", "NCCL_COMM_ID=",
			"MASTER_ADDR=", "MASTER_PORT=", "PURERDMA_ID_FILE="+file, aloneVariable+"=1")
		cmd.Stderr = stderr
		if err := cmd.Start(); err != nil {
			return nil, errors.Join(fmt.Errorf("starting rank %d: %w", rank, err), c.end(err))
		}
		c.others = append(c.others, cmd)
	}
	return c, nil
}

// aloneVariable tells a rank that all ranks are on this machine, started by its rank 0.
const aloneVariable = "PURERDMA_SENDRECV_LOCAL"

// end waits for the others, not long if rank 0 has failed.
func (c *crew) end(failed error) error {
	if failed != nil {
		defer time.AfterFunc(patience, c.cancel).Stop()
	}
	var errs []error
	for i, cmd := range c.others {
		if err := cmd.Wait(); err != nil && failed == nil {
			errs = append(errs, fmt.Errorf("rank %d: %w", i+1, err))
		}
	}
	c.cancel()
	return errors.Join(append(errs, os.RemoveAll(c.dir))...)
}
