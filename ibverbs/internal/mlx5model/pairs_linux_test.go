package mlx5model

import (
	"bytes"
	"net"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"
)

// end is a program on its way.
type end struct {
	*exec.Cmd
	said   bytes.Buffer
	exited chan error
}

// begin starts a program, which is killed when it is late or the test is over.
func (l *lab) begin(t *testing.T, program string, args ...string) *end {
	t.Helper()
	e := &end{Cmd: l.command(t, program, args...), exited: make(chan error, 1)}
	e.Stdout, e.Stderr = &e.said, &e.said
	if err := e.Start(); err != nil {
		t.Fatal(err)
	}
	late := time.AfterFunc(patience, func() { _ = e.Process.Kill() })
	go func() {
		err := e.Wait()
		late.Stop()
		e.exited <- err
		close(e.exited)
	}()
	t.Cleanup(func() {
		_ = e.Process.Kill()
		for range e.exited {
		}
	})
	return e
}

// freePort is a port of TCP that nobody had a moment ago.
func freePort(t *testing.T) int {
	t.Helper()
	n, err := net.Listen("tcp", "localhost:0")
	if err != nil {
		t.Fatal(err)
	}
	defer n.Close()
	return n.Addr().(*net.TCPAddr).Port
}

// pair runs a program as server and as client until both are content, and is what the
// client said. The programs do not say when they listen, so the client is started until it
// meets the server.
func (l *lab) pair(t *testing.T, program string, args ...string) string {
	t.Helper()
	args = append([]string{"-p", strconv.Itoa(freePort(t))}, args...)
	s := l.begin(t, program, args...)
	for {
		c := l.begin(t, program, append(args, "localhost")...)
		err := <-c.exited
		if err != nil && strings.Contains(c.said.String(), "ouldn't connect") {
			select {
			case err := <-s.exited:
				t.Fatalf("server: %v\n%s", err, &s.said)
			case <-time.After(5 * time.Millisecond):
			}
			continue
		}
		if err != nil {
			_ = s.Process.Kill()
		}
		if served := <-s.exited; err != nil || served != nil {
			t.Fatalf("client: %v\n%s\nserver: %v\n%s", err, &c.said, served, &s.said)
		}
		return c.said.String()
	}
}

// TestTrapped catches each store into a page of doorbells, so that what it announces is
// looked at before the program goes on.
func TestTrapped(t *testing.T) {
	if runtime.GOARCH != "amd64" {
		t.Skip("stores are caught on amd64 only")
	}
	l := newLab(t, false, "ibv_rc_pingpong", "ib_send_lat")
	t.Setenv("MLX5MODEL_TRAP", "1")
	for i, c := range []string{
		"ib_send_lat -n 8 -e -F", "ibv_rc_pingpong -n 20 -c -e",
		"ibv_srq_pingpong -n 20 -c", "ib_write_bw -n 64 -l 16 -F", "ib_write_lat -n 8 -I 64 -s 64 -F",
	} {
		if testing.Short() && i >= 2 {
			return
		}
		t.Run(c, func(t *testing.T) {
			f := strings.Fields(c)
			l.pair(t, f[0], f[1:]...)
		})
	}
}

// TestPingpong runs rdma-core's own programs, which look at what they receive. Words with
// a sign of equality are of the environment.
func TestPingpong(t *testing.T) {
	for link, rows := range map[string][]string{
		"InfiniBand": {
			"ibv_rc_pingpong -s 16", // in the completion
			"ibv_rc_pingpong -e", "ibv_ud_pingpong -s 1000 -e -g 0", "ibv_srq_pingpong -e",
			"ibv_rc_pingpong", "ibv_uc_pingpong", "ibv_uc_pingpong -e", "ibv_ud_pingpong -s 1000", "ibv_srq_pingpong",
			"MLX5_CQE_SIZE=128 ibv_rc_pingpong -s 64 -e", "MLX5_SCATTER_TO_CQE=0 ibv_rc_pingpong -s 16 -e",
		},
		"Ethernet": {
			"ibv_ud_pingpong -s 1000 -e -g 2", "ibv_rc_pingpong -e -g 1",
			"ibv_rc_pingpong -e -g 2", "ibv_ud_pingpong -s 1000 -e -g 1", "ibv_srq_pingpong -e -g 2", "ibv_uc_pingpong -e -g 2",
		},
	} {
		l := newLab(t, link == "Ethernet", "ibv_rc_pingpong")
		for i, row := range rows {
			if testing.Short() && i >= 4 {
				break
			}
			t.Run(link+"/"+row, func(t *testing.T) {
				words := strings.Fields(row)
				if name, value, ok := strings.Cut(words[0], "="); ok {
					t.Setenv(name, value)
					words = words[1:]
				}
				out := l.pair(t, words[0], append(words[1:], "-n", "60", "-c")...)
				contains(t, out, "60 iters in")
				if strings.Contains(out, "invalid data") {
					t.Error(out)
				}
			})
		}
	}
}
