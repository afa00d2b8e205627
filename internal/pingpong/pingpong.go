// Package pingpong is one end of the sessions of rdma-core's ibv_rc_pingpong,
// ibv_uc_pingpong, ibv_ud_pingpong and ibv_srq_pingpong, so that tests meet
// programs in C that nobody here wrote, in either role and on any device.
package pingpong

import (
	"bytes"
	"context"
	"errors"
	"net"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/purerdma/purerdma/ibverbs"
	"github.com/purerdma/purerdma/internal/cause"
	"github.com/purerdma/purerdma/internal/hwtest"
)

// Kind is one of the programs, by the part of its name that tells them apart.
type Kind string

// The programs of rdma-core.
const (
	RC  Kind = "rc"
	UC  Kind = "uc"
	UD  Kind = "ud"
	SRQ Kind = "srq"
)

// Program is the name of the program.
func (k Kind) Program() string { return "ibv_" + string(k) + "_pingpong" }

// Needs is the feature without which a device has no such session, "" if every
// device has what it takes.
func (k Kind) Needs() ibverbs.Feature {
	return map[Kind]ibverbs.Feature{UC: ibverbs.FeatureUC, UD: ibverbs.FeatureUD, SRQ: ibverbs.FeatureSRQ}[k]
}

// Session is a session as both ends are told.
type Session struct {
	Kind   Kind
	Size   int         // of a message, in bytes
	Rounds int         // messages each way
	Depth  int         // receives that are kept posted
	QPs    int         // connections that share the receives, for SRQ
	MTU    ibverbs.MTU // of the path; 0 is 1024 bytes, which is the programs' own
	Events bool        // sleep until completions come, instead of polling
}

// Run plays our end on an open device at the place ours against the program at
// theirs. It ends the test where either end is not content, and skips it where
// the program is not installed.
func (s Session) Run(t *testing.T, dev *ibverbs.Context, ours, theirs hwtest.Place, cServes bool) {
	t.Helper()
	if _, err := exec.LookPath(s.Kind.Program()); err != nil {
		t.Skipf("needs %s: apt-get install ibverbs-utils", s.Kind.Program())
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if s.Kind != SRQ {
		s.QPs = 1
	}
	if s.MTU == 0 {
		s.MTU = ibverbs.MTU1024
	}
	e := end{Session: s, dev: dev, at: ours, seed: hwtest.Rand(t)}
	if err := e.open(); err != nil {
		t.Fatal(errors.Join(err, e.close()))
	}
	c := program{args: s.arguments(theirs)}
	conn, err := c.start(ctx, s.Kind.Program(), cServes)
	if err == nil {
		err = e.session(ctx, conn, cServes)
		_ = conn.Close()
	}
	if err != nil {
		cancel()
	}
	err = errors.Join(err, c.end(), e.close())
	if err != nil {
		t.Fatalf("%v\nC said:\n%s", err, &c.said)
	}
}

func (s Session) arguments(at hwtest.Place) []string {
	args := []string{"-d", at.Device, "-i", strconv.Itoa(at.Port), "-g", strconv.Itoa(at.GID.Index),
		"-s", strconv.Itoa(s.Size), "-n", strconv.Itoa(s.Rounds), "-r", strconv.Itoa(s.Depth), "-c"}
	if s.Kind == SRQ {
		args = append(args, "-q", strconv.Itoa(s.QPs))
	}
	if s.Kind != UD {
		args = append(args, "-m", strconv.Itoa(s.MTU.Bytes()))
	}
	if s.Events {
		args = append(args, "-e")
	}
	return args
}

// program is the other end. Its option -c checks the values that it receives.
type program struct {
	args []string
	cmd  *exec.Cmd
	said bytes.Buffer
}

// start starts it and returns the connection by which addresses are exchanged.
func (p *program) start(ctx context.Context, name string, serves bool) (net.Conn, error) {
	l, err := net.Listen("tcp", "localhost:0")
	if err != nil {
		return nil, err
	}
	defer l.Close()
	addr := l.Addr().String()
	_, port, _ := net.SplitHostPort(addr)
	args := append(p.args, "-p", port)
	if serves {
		l.Close()
	} else {
		args = append(args, "localhost")
	}
	p.cmd = exec.CommandContext(ctx, name, args...)
	p.cmd.Stdout, p.cmd.Stderr = &p.said, &p.said
	if err := p.cmd.Start(); err != nil {
		p.cmd = nil
		return nil, err
	}
	conn, err := l.Accept()
	if serves {
		conn, err = dial(ctx, "localhost:"+port)
	}
	if err != nil {
		return nil, err
	}
	deadline, _ := ctx.Deadline()
	return conn, conn.SetDeadline(deadline)
}

// dial tries until the other program listens.
func dial(ctx context.Context, addr string) (net.Conn, error) {
	for {
		var d net.Dialer
		conn, err := d.DialContext(ctx, "tcp", addr)
		if err == nil {
			return conn, nil
		}
		if ctx.Err() != nil {
			return nil, errors.Join(cause.Of(ctx), err)
		}
		runtime.Gosched()
	}
}

var errNotContent = errors.New("the program found wrong data, or did not come to its end")

// end waits for the program and says what it has to complain of.
func (p *program) end() error {
	if p.cmd == nil {
		return nil
	}
	if err := p.cmd.Wait(); err != nil {
		return err
	}
	if said := p.said.String(); strings.Contains(said, "invalid data") || !strings.Contains(said, "iters in") {
		return errNotContent
	}
	return nil
}
