//go:build linux

package main

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// Variables of the test binary as a rank.
const (
	absentVariable   = "PURERDMA_SENDRECV_ABSENT"   // the rank of this number dies before it does anything
	patienceVariable = "PURERDMA_SENDRECV_PATIENCE" // of rank 0
)

// asVariablesSay is called where the process becomes a rank.
func asVariablesSay() {
	if d, err := time.ParseDuration(os.Getenv(patienceVariable)); err == nil {
		patience = d
	}
	if who := os.Getenv(absentVariable); who != "" && who == os.Getenv("PURERDMA_RANK") {
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
		select {} // until it has come
	}
}

// manyRounds is a job of four ranks on two hosts that does not end by itself.
func manyRounds(t *testing.T, env ...string) (cmd *exec.Cmd, stderr *bytes.Buffer) {
	cmd = exec.CommandContext(t.Context(), os.Args[0], "--json", "-n", "4", "--hosts", "2", "-c", "2", "-p", random, "--max", "1M", "--rounds", "1000000", "-d", "soft0")
	cmd.Env = append(append(os.Environ(), "NCCL_BUFFSIZE=1048576", "TMPDIR="+t.TempDir()), env...)
	stderr = new(bytes.Buffer)
	cmd.Stderr, cmd.WaitDelay = stderr, testLimit // ends when the last rank has
	return cmd, stderr
}

// allName checks that each rank but the victim has said an error that names the victim.
func allName(t *testing.T, stderr string, ranks, victim int) {
	t.Helper()
	said := map[int]string{}
	for _, one := range strings.Split(stderr, "error: rank ")[1:] {
		rank, words, _ := strings.Cut(one, ":")
		if n, err := strconv.Atoi(rank); err == nil {
			said[n] += words
		}
	}
	for rank := range ranks {
		if rank != victim && !strings.Contains(said[rank], fmt.Sprintf("rank %d", victim)) {
			t.Errorf("rank %d does not name rank %d: %s\n%s", rank, victim, said[rank], stderr)
		}
	}
}

// A rank dies before it has come to the meeting: the others, who wait there, learn of it from rank 0, which has started it.
func TestRankThatNeverComes(t *testing.T) {
	cmd, stderr := manyRounds(t, asCommand+"=1", absentVariable+"=2", patienceVariable+"=100ms")
	if err := cmd.Run(); err == nil {
		t.Error("no error")
	}
	allName(t, stderr.String(), 4, 2)
}

// A rank is killed at any moment, before the ranks have met, while they connect or in the middle of data: every other rank names it, and no
// process is left.
func TestKilledRank(t *testing.T) {
	runs := 8
	if testing.Short() {
		runs = 2
	}
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	for range runs {
		const n = 4
		job := fmt.Sprint(r.Uint64())
		cmd, stderr := manyRounds(t, asCommand+"="+job, patienceVariable+"=1s")
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		victim, later := r.IntN(n), time.Duration(r.IntN(1_500_000)>>r.IntN(8))*time.Microsecond
		pids := ranksOf(t, job, n)
		pids[0] = cmd.Process.Pid
		time.Sleep(later) // wherever the ranks are then
		if err := syscall.Kill(pids[victim], syscall.SIGKILL); err != nil {
			t.Error(err)
		}
		killed := time.Now()
		err := cmd.Wait()
		t.Logf("rank %d killed after %v, all had ended %v later", victim, later, time.Since(killed).Round(time.Millisecond))
		if err == nil {
			t.Error("no error")
		}
		allName(t, stderr.String(), n, victim)
		for rank, pid := range pids {
			if environ(pid, asCommand) == job {
				t.Errorf("rank %d still runs", rank)
				_ = syscall.Kill(pid, syscall.SIGKILL)
			}
		}
		if t.Failed() {
			break
		}
	}
}

// ranksOf waits until a command has started its ranks, and returns their processes. job is the value of asCommand that they have.
func ranksOf(t *testing.T, job string, n int) map[int]int {
	t.Helper()
	found := map[int]int{}
	for end := time.Now().Add(testLimit); len(found) < n-1; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%d ranks have started: %v", len(found), found)
		}
		all, err := os.ReadDir("/proc")
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range all {
			pid, err := strconv.Atoi(e.Name())
			if err != nil || environ(pid, asCommand) != job {
				continue
			}
			if rank, err := strconv.Atoi(environ(pid, "PURERDMA_RANK")); err == nil {
				found[rank] = pid
			}
		}
	}
	return found
}

// environ is a variable of a process; "" if it has none, or is gone.
func environ(pid int, name string) string {
	text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid))
	for v := range strings.SplitSeq(string(text), "\x00") {
		if value, ok := strings.CutPrefix(v, name+"="); ok {
			return value
		}
	}
	return ""
}
