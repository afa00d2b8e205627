//go:build linux

package main

import (
	"bytes"
	"flag"
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

var kills = flag.Int("kills", 8, "how many ranks TestKilledRank kills; 104 are one at each stage and as many at any moment")

// Variables of the test binary as a rank.
const (
	absentVariable   = "PURERDMA_SENDRECV_ABSENT"   // the rank of this number dies before it does anything
	deathVariable    = "PURERDMA_SENDRECV_DEATH"    // which rank dies where, as a death says it
	patienceVariable = "PURERDMA_SENDRECV_PATIENCE" // of rank 0
)

// asVariablesSay is called where the process becomes a rank.
func asVariablesSay() {
	if d, err := time.ParseDuration(os.Getenv(patienceVariable)); err == nil {
		patience = d
	}
	if who := os.Getenv(absentVariable); who != "" && who == os.Getenv("PURERDMA_RANK") {
		die()
	}
	rank := os.Getenv("PURERDMA_RANK")
	if rank == "" {
		rank = "0"
	}
	if d := new(death); d.scan(os.Getenv(deathVariable)) && rank == strconv.Itoa(d.rank) {
		between = (&mortal{death: *d, calls: map[string]int{}}).between
	}
}

func die() {
	_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
	select {} // until it has come
}

// manyRounds is a job of four ranks on two hosts, so that each has peers over SHM and over NET, that does not end by itself.
func manyRounds(t *testing.T, env ...string) (cmd *exec.Cmd, stderr *bytes.Buffer) {
	cmd = exec.CommandContext(t.Context(), os.Args[0], "--json", "-n", "4", "--hosts", "2", "-c", "2", "-p", random, "--max", "1M", "--rounds", "1000000", "-d", "soft0")
	cmd.Env = append(append(os.Environ(), "NCCL_BUFFSIZE=1048576"), env...)
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

// nothingLeft checks that a job has left no process and no file.
func nothingLeft(t *testing.T, job, dir string) {
	t.Helper()
	for rank, pid := range processesOf(t, job) {
		t.Errorf("rank %d still runs", rank)
		_ = syscall.Kill(pid, syscall.SIGKILL)
	}
	if left, err := os.ReadDir(dir); len(left) != 0 || err != nil {
		t.Errorf("left: %v, %v", left, err)
	}
}

// A rank dies before it has come to the meeting: the others, who wait there, learn of it from rank 0, which has started it.
func TestRankThatNeverComes(t *testing.T) {
	dir := t.TempDir()
	cmd, stderr := manyRounds(t, asCommand+"=absent", absentVariable+"=2", patienceVariable+"=100ms", "TMPDIR="+dir)
	if err := cmd.Run(); err == nil {
		t.Error("no error")
	}
	allName(t, stderr.String(), 4, 2)
	nothingLeft(t, "absent", dir)
}

// A rank is killed, by turns at a stage of set-up and at any moment, before the ranks have met, while they connect or in the middle of
// data: every other rank names it, and no process and no file is left.
//
//	go test ./bench/sendrecv -run TestKilledRank -kills 200
func TestKilledRank(t *testing.T) {
	runs := *kills
	if testing.Short() {
		runs = min(runs, 2)
	}
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	stages := r.Perm(len(deaths))
	dir := t.TempDir()
	var longest time.Duration
	for i := range runs {
		const n = 4
		victim, job := r.IntN(n), fmt.Sprint(r.Uint64())
		later := time.Duration(r.IntN(1_500_000)>>r.IntN(8)) * time.Microsecond
		env := []string{asCommand + "=" + job, patienceVariable + "=1s", "TMPDIR=" + dir}
		d := deaths[stages[i/2%len(stages)]]
		if d.rank = victim; i%2 == 0 {
			env = append(env, deathVariable+"="+d.String())
		}
		cmd, stderr := manyRounds(t, env...)
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		where, killed := d.String(), time.Now()
		if i%2 == 1 {
			pids := ranksOf(t, job, n)
			pids[0] = cmd.Process.Pid
			time.Sleep(later) // wherever the ranks are then
			if err := syscall.Kill(pids[victim], syscall.SIGKILL); err != nil {
				t.Error(err)
			}
			where, killed = fmt.Sprintf("%d after %v", victim, later), time.Now()
		}
		err := cmd.Wait()
		over := time.Now()
		if i%2 == 0 {
			if killed = saidAt(stderr.String()); killed.IsZero() {
				t.Errorf("rank %v: it did not come to that\n%s", d, stderr)
			}
		}
		longest = max(longest, over.Sub(killed))
		t.Logf("rank %s: all had ended %v later", where, over.Sub(killed).Round(time.Millisecond))
		if err == nil {
			t.Error("no error")
		}
		allName(t, stderr.String(), n, victim)
		nothingLeft(t, job, dir)
		if t.Failed() {
			break
		}
	}
	t.Logf("%d killed; the others had ended %v after a death at the latest", runs, longest)
}

// ranksOf waits until a command has started its ranks, and returns their processes. job is the value of asCommand that they have.
func ranksOf(t *testing.T, job string, n int) map[int]int {
	t.Helper()
	var found map[int]int
	for end := time.Now().Add(testLimit); len(found) < n-1; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%d ranks have started: %v", len(found), found)
		}
		found = processesOf(t, job)
		delete(found, 0)
	}
	return found
}

// processesOf finds the processes of a job, by rank.
func processesOf(t *testing.T, job string) map[int]int {
	t.Helper()
	found := map[int]int{}
	all, err := os.ReadDir("/proc")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range all {
		pid, err := strconv.Atoi(e.Name())
		if err != nil || environ(pid, asCommand) != job {
			continue
		}
		rank, _ := strconv.Atoi(environ(pid, "PURERDMA_RANK")) // rank 0 has none
		found[rank] = pid
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

// All ranks are killed at once before they have met, with nobody left to remove the folder that rank 0 has made: the next job does.
func TestAllKilled(t *testing.T) {
	dir := t.TempDir()
	const job = "all killed"
	cmd, stderr := manyRounds(t, asCommand+"="+job, absentVariable+"=2", patienceVariable+"=1h", "TMPDIR="+dir)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var ranks map[int]int
	for end := time.Now().Add(testLimit); len(ranks) != 3 || ranks[0] == 0 || ranks[1] == 0 || ranks[3] == 0; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("started: %v\n%s", ranks, stderr)
		}
		ranks = processesOf(t, job) // rank 2 has died
	}
	for _, signal := range []syscall.Signal{syscall.SIGSTOP, syscall.SIGKILL} { // none sees another die
		for _, pid := range ranks {
			if err := syscall.Kill(pid, signal); err != nil {
				t.Error(err)
			}
		}
	}
	_ = cmd.Wait()
	if left, err := os.ReadDir(dir); len(left) != 1 || err != nil {
		t.Errorf("left by those that were killed: %v, %v", left, err)
	}
	t.Setenv("TMPDIR", dir)
	if _, stderr, err := command(t, testLimit, "-n", "2", "-t", "shm", "--max", "8", "--iters", "1", "--rounds", "1"); err != nil {
		t.Errorf("%v\n%s", err, stderr)
	}
	nothingLeft(t, job, dir)
}
