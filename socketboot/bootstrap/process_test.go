package bootstrap

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/purerdma/purerdma/internal/leaktest"
)

// childEnv makes a copy of the test binary a rank: "rank id".
const childEnv = "BOOTSTRAP_TEST_RANK"

func TestMain(m *testing.M) {
	if role := os.Getenv(childEnv); role != "" {
		child(role)
		return
	}
	leaktest.Main(m)
}

// child joins a job of three, says so, waits for a message that nobody sends, and says why there was none.
func child(role string) {
	rank, id, _ := strings.Cut(role, " ")
	n, err := strconv.Atoi(rank)
	job, err2 := ParseID(id)
	if err != nil || err2 != nil {
		fmt.Println(err, err2)
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	m, err := Join(ctx, Config{ID: job, Rank: n, Size: 3, Net: loopback(nil, ip4)})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println("joined")
	_, err = m.Recv(ctx, (n+1)%3, 1)
	fmt.Println(err)
	_ = m.Close()
}

// A process of a job is killed. The others, processes too, learn at once which it was.
func TestKilledProcess(t *testing.T) {
	r := root(t, RootConfig{Net: loopback(t, ip4)})
	var ranks [3]*exec.Cmd
	var said [3]*bufio.Reader
	for rank := range ranks {
		c := exec.CommandContext(soon(t), os.Args[0])
		c.Env = append(os.Environ(), fmt.Sprintf("%s=%d %s", childEnv, rank, r.ID()))
		out, err := c.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		ranks[rank], said[rank] = c, bufio.NewReader(out)
		defer func() { _ = c.Process.Kill(); _ = c.Wait() }()
	}
	line := func(rank int) string {
		s, err := said[rank].ReadString('\n')
		if err != nil {
			t.Errorf("rank %d: %q, %v", rank, s, err)
		}
		return strings.TrimSpace(s)
	}
	for rank := range ranks {
		if s := line(rank); s != "joined" {
			t.Fatalf("rank %d: %s", rank, s)
		}
	}
	if err := ranks[1].Process.Kill(); err != nil {
		t.Fatal(err)
	}
	for _, rank := range []int{0, 2} {
		if s := line(rank); !strings.Contains(s, "rank 1 at 127.0.0.1:") || !strings.Contains(s, ErrDied.Error()) {
			t.Errorf("rank %d: %s", rank, s)
		}
	}
}
