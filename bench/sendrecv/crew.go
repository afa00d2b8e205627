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
	"strings"
	"time"

	"github.com/purerdma/purerdma/internal/tempdir"
	"github.com/purerdma/purerdma/socketboot/launch"
)

// crew is the ranks that this process, which is rank 0, has started on this machine.
type crew struct {
	info   launch.Info // of rank 0
	dir    *tempdir.Dir
	others []*mate
	kill   context.CancelFunc
}

// mate is one of the others.
type mate struct {
	reins io.WriteCloser // its standard input, whose end is that of rank 0
	ended chan error
}

// patience is how long after a rank has failed the job may take to tell rank 0 why. It cannot tell of one that has not come to the meeting.
// A variable for tests.
var patience = 5 * time.Second

// lastPatience is how long the others may take to end after they have been told to.
const lastPatience = 30 * time.Second

// startCrew starts ranks 1 to n − 1 with a command line. They are killed when ctx ends. lost is told of one that has failed, after patience.
func startCrew(ctx context.Context, n int, args []string, lost func(error)) (c *crew, err error) {
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("starting the ranks: %w", err)
	}
	dir, err := tempdir.Make(idFolder)
	if err != nil {
		return nil, fmt.Errorf("starting the ranks: %w", err)
	}
	file := filepath.Join(dir.Path(), "id")
	ctx, kill := context.WithCancel(ctx)
	c = &crew{info: launch.Info{Launcher: "sendrecv", Size: n, IDFile: file}, dir: dir, kill: kill}
	for rank := 1; rank < n; rank++ {
		cmd := exec.CommandContext(ctx, self, args...)
		at := strconv.Itoa(rank)
		cmd.Env = append(os.Environ(), "PURERDMA_RANK="+at, "PURERDMA_LOCAL_RANK="+at, "PURERDMA_SIZE="+strconv.Itoa(n), "PURERDMA_ROOT=", "NCCL_COMM_ID=",
			"MASTER_ADDR=", "MASTER_PORT=", "PURERDMA_ID_FILE="+file, aloneVariable+"=1")
		cmd.Stderr = os.Stderr // as it is, to outlive this process
		reins, err := cmd.StdinPipe()
		if err == nil {
			err = cmd.Start()
		}
		if err != nil {
			err = fmt.Errorf("starting rank %d: %w", rank, err)
			return nil, errors.Join(err, c.end(err))
		}
		one := &mate{reins, make(chan error, 1)}
		c.others = append(c.others, one)
		go func() {
			err := cmd.Wait()
			if err != nil {
				err = fmt.Errorf("rank %d: %w", rank, err)
				time.AfterFunc(patience, func() { lost(err) })
			}
			one.ended <- err
		}()
	}
	return c, nil
}

// end waits for the others, not long if rank 0 has failed, which they are told.
func (c *crew) end(failed error) error {
	if failed != nil {
		defer time.AfterFunc(lastPatience, c.kill).Stop()
		for _, one := range c.others {
			_, _ = io.WriteString(one.reins, failed.Error())
			_ = one.reins.Close()
		}
	}
	var errs []error
	for _, one := range c.others {
		if err := <-one.ended; err != nil && failed == nil {
			errs = append(errs, err)
		}
	}
	c.kill()
	return errors.Join(append(errs, c.dir.Remove())...)
}

// aloneVariable tells a rank that all ranks are on this machine, started by its rank 0, which holds the other end of its standard input.
const aloneVariable = "PURERDMA_SENDRECV_LOCAL"

// idFolder is how the name begins of the folder that rank 0 makes for the file with the job's id.
const idFolder = "purerdma-sendrecv-"

// removeID removes that folder. Others may have done so already.
func removeID(file string) {
	if dir := filepath.Dir(file); strings.HasPrefix(filepath.Base(dir), idFolder) {
		_ = os.RemoveAll(dir)
	}
}

// whileRankZeroLives is ctx until rank 0, which has started this one, says through reins that it has failed, or its process ends. Where it
// has said nothing it was killed: the file with the job's id, which it made, is removed for it.
func whileRankZeroLives(ctx context.Context, reins io.Reader, id string) context.Context {
	ctx, cancel := context.WithCancelCause(ctx)
	go func() {
		last, _ := io.ReadAll(reins)
		if len(last) == 0 {
			removeID(id)
			last = []byte("rank 0, which has started this one, has ended")
		}
		cancel(errors.New(string(last)))
	}()
	return ctx
}
