//go:build linux

package shmtransport

import (
	"bufio"
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/purerdma/purerdma/transport"
	"github.com/purerdma/purerdma/transport/driver"
)

// describe makes this process a rank of the host "box" that listens at addr.
func describe(rank int, addr string) (*Transport, driver.PeerInfo, error) {
	self, err := transport.Identify(transport.World{}, "box")
	if err != nil {
		return nil, self, err
	}
	self.Rank, self.Version = rank, driver.ProtocolVersion
	t := New(Config{Addr: addr})
	return t, self, t.Describe(&self)
}

func say(info driver.PeerInfo) (string, error) {
	b, err := info.Append(nil)
	return hex.EncodeToString(b), err
}

func heard(text string) (driver.PeerInfo, error) {
	b, err := hex.DecodeString(text)
	if err != nil {
		return driver.PeerInfo{}, err
	}
	return driver.DecodePeerInfo(b)
}

func init() {
	// A rank in a container: it hides directories under a tmpfs of its own, tells who it is, hears who the other is, and says whether it
	// can connect.
	children["container"] = func() (err error) {
		words := strings.Split(os.Getenv("PURERDMA_SHM_ADDR"), " ")
		if len(words) > 1 {
			if err := unix.Mount("none", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
				return err
			}
		}
		for _, dir := range words[1:] {
			if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=1m"); err != nil {
				return fmt.Errorf("mount at %s: %w", dir, err)
			}
		}
		tr, self, err := describe(1, words[0])
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, tr.Close()) }()
		mine, err := say(self)
		if err != nil {
			return err
		}
		fmt.Println(mine)
		in := bufio.NewScanner(os.Stdin)
		if !in.Scan() {
			return in.Err()
		}
		peer, err := heard(in.Text())
		if err != nil {
			return err
		}
		w, why := tr.way(&self, &peer)
		fmt.Printf("%v: %s\n", w, why)
		in.Scan() // until the other has tried, too
		return in.Err()
	}
}

// Two containers of one host share memory if they have a network namespace or a directory in common, which each of them tries before it
// says so; else by a file, if /dev/shm is the same one; else not at all.
func TestContainers(t *testing.T) {
	const own = syscall.CLONE_NEWPID | syscall.CLONE_NEWIPC | syscall.CLONE_NEWNS
	dir := t.TempDir()
	path := func(rank int) string { return filepath.Join(dir, fmt.Sprint("rank", rank)) }
	abstract := func(int) string { return "" }
	for name, c := range map[string]struct {
		flags uintptr
		addr  func(rank int) string
		hides string
		want  string
	}{
		"one container":                         {0, abstract, "", "memfd: "},
		"network in common":                     {own, abstract, "/dev/shm", "memfd: "},
		"directory in common":                   {own | syscall.CLONE_NEWNET, path, "/dev/shm", "memfd: "},
		"/dev/shm in common":                    {own | syscall.CLONE_NEWNET, abstract, "", "file: "},
		"same path, another directory":          {own | syscall.CLONE_NEWNET, path, dir, "file: "},
		"same path, another directory, nothing": {own | syscall.CLONE_NEWNET, path, dir + " /dev/shm", "no /dev/shm in common"},
		"nothing in common":                     {own | syscall.CLONE_NEWNET, abstract, "/dev/shm", "different network namespaces; no /dev/shm in common"},
	} {
		t.Run(name, func(t *testing.T) {
			tr, self, err := describe(0, c.addr(0))
			if err != nil {
				t.Fatal(err)
			}
			defer tr.Close()
			if self.ShmDev == 0 {
				t.Skip("no /dev/shm here")
			}
			cmd := exec.Command("/proc/self/exe")
			cmd.Env = append(os.Environ(), childVariable+"=container", "PURERDMA_SHM_ADDR="+strings.TrimSpace(c.addr(1)+" "+c.hides))
			if c.addr(1) == "" {
				cmd.Env[len(cmd.Env)-1] = strings.TrimRight("PURERDMA_SHM_ADDR= "+c.hides, " ")
			}
			if c.flags != 0 {
				cmd.SysProcAttr = apart(t, c.flags)
			}
			cmd.Stderr = os.Stderr
			in, err := cmd.StdinPipe()
			out, err2 := cmd.StdoutPipe()
			if err := errors.Join(err, err2); err != nil {
				t.Fatal(err)
			}
			if err := cmd.Start(); err != nil {
				t.Skipf("no namespaces here: %v", err)
			}
			defer func() {
				if err := errors.Join(in.Close(), cmd.Wait()); err != nil {
					t.Error(err)
				}
			}()
			said := bufio.NewScanner(out)
			said.Scan()
			peer, err := heard(said.Text())
			if err != nil {
				t.Fatalf("%q: %v", said.Text(), err)
			}
			mine, err := say(self)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := fmt.Fprintln(in, mine); err != nil {
				t.Fatal(err)
			}
			said.Scan()
			w, why := tr.way(&self, &peer)
			here := fmt.Sprintf("%v: %s", w, why)
			for end, got := range map[string]string{"here": here, "in the container": said.Text()} {
				if !strings.Contains(got, c.want) {
					t.Errorf("%s: %q, want %q", end, got, c.want)
				}
			}
		})
	}
}

// Data goes from one container to the other, by a socket in a directory that both have. The other's pid is the one here.
func TestMessagesBetweenContainers(t *testing.T) {
	l, err := Listen(filepath.Join(t.TempDir(), "socket"))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), childVariable+"=echo", "PURERDMA_SHM_ADDR="+l.Addr())
	cmd.SysProcAttr = apart(t, syscall.CLONE_NEWPID|syscall.CLONE_NEWIPC|syscall.CLONE_NEWNS|syscall.CLONE_NEWNET)
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		t.Skipf("no namespaces here: %v", err)
	}
	c, err := l.Accept(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if p := c.Peer(); p.PID != cmd.Process.Pid {
		t.Errorf("peer %+v, want process %d", p, cmd.Process.Pid)
	}
	buf := make([]byte, 1<<20)
	for i, n := range []int{0, 8, 33, 4096, 1 << 20} {
		m := patterned(n, uint64(i))
		if err := c.Send(t.Context(), m); err != nil {
			t.Fatal(err)
		}
		if got, err := c.Recv(t.Context(), buf); err != nil || !bytes.Equal(buf[:got], m) {
			t.Errorf("%d bytes: %d came back, %v", n, got, err)
		}
	}
	if err := errors.Join(c.Close(), cmd.Wait()); err != nil {
		t.Error(err)
	}
}
