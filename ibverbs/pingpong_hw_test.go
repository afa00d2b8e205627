//go:build hw && linux

package ibverbs_test

import (
	"bytes"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/purerdma/purerdma/ibverbs"
	"github.com/purerdma/purerdma/internal/hwtest"
	"github.com/purerdma/purerdma/mr"
)

// Full sessions against ibv_rc_pingpong, a C program of rdma-core that nobody
// here wrote: both roles, polled and with events, on one device and between two.
// Its option -c checks the values it receives.
func TestPingpongWithC(t *testing.T) {
	if _, err := exec.LookPath("ibv_rc_pingpong"); err != nil {
		t.Skip("needs ibv_rc_pingpong: apt-get install ibverbs-utils")
	}
	for _, same := range []bool{true, false} {
		for _, cServes := range []bool{true, false} {
			for _, events := range []bool{false, true} {
				name := fmt.Sprintf("same device %v, C serves %v, events %v", same, cServes, events)
				t.Run(name, func(t *testing.T) {
					ours, theirs := hwtest.Pair(t, same)
					s := pingpong{size: 4096, rounds: 200, depth: 100, events: events, ours: ours}
					s.run(t, theirs, cServes)
				})
			}
		}
	}
}

// pingpong is our end of a session.
type pingpong struct {
	size, rounds, depth int
	events              bool
	ours                hwtest.Place

	dev  *ibverbs.Context
	cq   *ibverbs.CQ
	qp   *ibverbs.QP
	buf  *mr.Buffer
	mem  *ibverbs.MR
	psn  uint32
	recv int // posted and not completed
}

// What a completion is of.
const (
	recvID = 1
	sendID = 2
)

func (s *pingpong) run(t *testing.T, theirs hwtest.Place, cServes bool) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	s.open(t)
	defer s.close(t)

	args := []string{"-d", theirs.Device, "-i", strconv.Itoa(theirs.Port), "-g", strconv.Itoa(theirs.GID.Index),
		"-s", strconv.Itoa(s.size), "-n", strconv.Itoa(s.rounds), "-c"}
	if s.events {
		args = append(args, "-e")
	}
	var conn net.Conn
	var cmd *exec.Cmd
	var out bytes.Buffer
	if cServes {
		port := freePort(t)
		cmd = exec.CommandContext(ctx, "ibv_rc_pingpong", append(args, "-p", port)...)
		cmd.Stdout, cmd.Stderr = &out, &out
		must(t, cmd.Start())
		conn = dialUntil(ctx, t, "localhost:"+port)
	} else {
		l, err := net.Listen("tcp", "localhost:0")
		must(t, err)
		defer l.Close()
		_, port, _ := net.SplitHostPort(l.Addr().String())
		cmd = exec.CommandContext(ctx, "ibv_rc_pingpong", append(args, "-p", port, "localhost")...)
		cmd.Stdout, cmd.Stderr = &out, &out
		must(t, cmd.Start())
		conn, err = l.Accept()
		must(t, err)
	}
	defer conn.Close()
	must(t, conn.SetDeadline(time.Now().Add(time.Minute)))

	if err := s.session(ctx, conn, cServes); err != nil {
		conn.Close()
		cancel()
		_ = cmd.Wait()
		t.Fatalf("our end: %v\nC said:\n%s", err, &out)
	}
	if err := cmd.Wait(); err != nil {
		t.Fatalf("C's end: %v\n%s", err, &out)
	}
	if said := out.String(); strings.Contains(said, "invalid data") || !strings.Contains(said, "iters in") {
		t.Fatalf("C is not content:\n%s", said)
	}
}

func (s *pingpong) open(t *testing.T) {
	t.Helper()
	var err error
	s.dev = s.ours.Open(t)
	pd, err := s.dev.AllocPD()
	must(t, err)
	var opts []ibverbs.CQOption
	if s.events {
		opts = append(opts, ibverbs.WithEvents())
	}
	s.cq, err = s.dev.CreateCQ(s.depth+1, opts...)
	must(t, err)
	s.buf, err = mr.Alloc(s.size)
	must(t, err)
	s.mem, err = pd.RegMR(s.buf, ibverbs.LocalWrite)
	must(t, err)
	s.qp, err = pd.CreateQP(ibverbs.QPConfig{SendCQ: s.cq, RecvCQ: s.cq,
		Cap: ibverbs.QPCap{SendWR: 1, RecvWR: s.depth, SendSGE: 1, RecvSGE: 1}})
	must(t, err)
	must(t, s.qp.Modify(&ibverbs.QPAttr{State: ibverbs.StateInit, Port: s.ours.Port},
		ibverbs.QPStateMask|ibverbs.QPPKeyIndex|ibverbs.QPPort|ibverbs.QPAccessFlags))
	s.psn = uint32(hwtest.Rand(t).IntN(1 << 24))
	must(t, s.post(s.depth))
}

func (s *pingpong) close(t *testing.T) {
	must(t, s.dev.Close())
	must(t, s.buf.Close())
}

func (s *pingpong) post(n int) error {
	for range n {
		if _, err := s.qp.PostRecv(ibverbs.RecvWR{ID: recvID, SGL: []ibverbs.SGE{s.mem.SGE(0, s.size)}}); err != nil {
			return err
		}
	}
	s.recv += n
	return nil
}

// session is the protocol: addresses by TCP, then messages in turn.
func (s *pingpong) session(ctx context.Context, conn net.Conn, weBegin bool) error {
	mine := fmt.Sprintf("%04x:%06x:%06x:%s\x00", 0, s.qp.Num(), s.psn, hex.EncodeToString(s.ours.GID.GID[:]))
	theirs := make([]byte, len(mine))
	if weBegin { // the client names itself first
		if _, err := io.WriteString(conn, mine); err != nil {
			return err
		}
	}
	if _, err := io.ReadFull(conn, theirs); err != nil {
		return fmt.Errorf("address of the peer: %w", err)
	}
	if err := s.connect(string(theirs[:len(theirs)-1])); err != nil {
		return err
	}
	done := "done\x00"
	if weBegin {
		if _, err := io.WriteString(conn, done); err != nil {
			return err
		}
	} else {
		if _, err := io.WriteString(conn, mine); err != nil {
			return err
		}
		if _, err := io.ReadFull(conn, make([]byte, len(done))); err != nil {
			return fmt.Errorf("word that the peer is ready: %w", err)
		}
	}
	return s.play(ctx, weBegin)
}

func (s *pingpong) connect(peer string) error {
	var lid, qpn, psn uint32
	var gid string
	if _, err := fmt.Sscanf(strings.ReplaceAll(peer, ":", " "), "%x %x %x %s", &lid, &qpn, &psn, &gid); err != nil {
		return fmt.Errorf("address %q of the peer: %w", peer, err)
	}
	var a ibverbs.QPAttr
	if _, err := hex.Decode(a.AH.DGID[:], []byte(gid)); err != nil {
		return fmt.Errorf("GID in %q: %w", peer, err)
	}
	a.State, a.PathMTU, a.DestQPN, a.RQPSN, a.MaxDestRdAtomic, a.MinRNRTimer = ibverbs.StateRTR, ibverbs.MTU1024, qpn, psn, 1, 12
	a.AH.IsGlobal, a.AH.SGIDIndex, a.AH.Port, a.AH.HopLimit = true, s.ours.GID.Index, s.ours.Port, 1
	if err := s.qp.Modify(&a, ibverbs.QPStateMask|ibverbs.QPAV|ibverbs.QPPathMTU|ibverbs.QPDestQPN|ibverbs.QPRQPSN|
		ibverbs.QPMaxDestRdAtomic|ibverbs.QPMinRNRTimer); err != nil {
		return err
	}
	return s.qp.Modify(&ibverbs.QPAttr{State: ibverbs.StateRTS, Timeout: 14, RetryCnt: 7, RNRRetry: 7, SQPSN: s.psn, MaxRdAtomic: 1},
		ibverbs.QPStateMask|ibverbs.QPTimeout|ibverbs.QPRetryCnt|ibverbs.QPRNRRetry|ibverbs.QPSQPSN|ibverbs.QPMaxQPRdAtomic)
}

// play sends one message for each that arrives, until both directions had their
// rounds.
func (s *pingpong) play(ctx context.Context, weBegin bool) error {
	sent, received, mayStart, sending := 0, 0, weBegin, false
	for sent < s.rounds || received < s.rounds {
		if mayStart && !sending && sent < s.rounds {
			if _, err := s.qp.PostSend(ibverbs.SendWR{ID: sendID, Op: ibverbs.OpSend, Flags: ibverbs.Signaled,
				SGL: []ibverbs.SGE{s.mem.SGE(0, s.size)}}); err != nil {
				return err
			}
			sending, mayStart = true, false
		}
		var wcs [8]ibverbs.WC
		n, err := s.wait(ctx, wcs[:])
		if err != nil {
			return fmt.Errorf("after %d sent and %d received: %w", sent, received, err)
		}
		for i := range wcs[:n] {
			if err := s.cq.Err(&wcs[i]); err != nil {
				return err
			}
			switch wcs[i].ID {
			case sendID:
				sent, sending = sent+1, false
			case recvID:
				received, mayStart = received+1, true
				if int(wcs[i].ByteLen) != s.size {
					return fmt.Errorf("message %d has %d bytes, want %d", received, wcs[i].ByteLen, s.size)
				}
				if s.recv--; s.recv <= 1 {
					if err := s.post(s.depth - s.recv); err != nil {
						return err
					}
				}
			}
		}
	}
	return nil
}

func (s *pingpong) wait(ctx context.Context, wcs []ibverbs.WC) (int, error) {
	if s.events {
		return s.cq.Wait(ctx, wcs)
	}
	for {
		if n, err := s.cq.Poll(wcs); n > 0 || err != nil {
			return n, err
		}
		if err := ctx.Err(); err != nil {
			return 0, err
		}
		runtime.Gosched()
	}
}

func freePort(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "localhost:0")
	must(t, err)
	defer l.Close()
	_, port, _ := net.SplitHostPort(l.Addr().String())
	return port
}

// dialUntil tries until the other program listens.
func dialUntil(ctx context.Context, t *testing.T, addr string) net.Conn {
	t.Helper()
	for {
		var d net.Dialer
		conn, err := d.DialContext(ctx, "tcp", addr)
		if err == nil {
			return conn
		}
		if ctx.Err() != nil {
			t.Fatal(errors.Join(err, ctx.Err()))
		}
		runtime.Gosched()
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
