//go:build hw && linux

package ibverbs_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/purerdma/purerdma/ibverbs"
	"github.com/purerdma/purerdma/internal/hwtest"
	"github.com/purerdma/purerdma/mr"
)

// Memory windows against rdma-core, by its bindings for Python: each end writes
// through a window of the other and takes it back by a message.
func TestWindowsWithRDMACore(t *testing.T) {
	ours, theirs := hwtest.Pair(t, false)
	e := openWindows(t, ours)
	defer e.close(t)
	peer := startPyverbs(t, theirs)

	var qpn uint32
	var gid ibverbs.GID
	var text string
	peer.hear(t, &qpn, &text)
	ok(t, gid.UnmarshalText([]byte(text)))
	e.connect(t, qpn, gid)
	peer.say(t, e.qp.Num(), e.at.GID.GID)

	// Theirs.
	var r ibverbs.Remote
	peer.hear(t, &r.Addr, &r.RKey)
	copy(e.buf.Bytes(), "from Go")
	e.send(t, ibverbs.SendWR{ID: 1, Op: ibverbs.OpWrite, SGL: []ibverbs.SGE{e.mem.SGE(0, 6)}, Remote: r})
	e.send(t, ibverbs.SendWR{ID: 2, Op: ibverbs.OpSendWithInv, SGL: []ibverbs.SGE{e.mem.SGE(0, 6)}, Imm: r.RKey})
	var key uint32
	peer.hear(t, &key, &text)
	if key != r.RKey || text != "from" {
		t.Errorf("the peer lost key %#x and got %q, want %#x and \"from\"", key, text, r.RKey)
	}

	// Ours.
	w, err := e.pd.AllocMW()
	ok(t, err)
	bind := w.Bind(e.mem, 1024, 512, ibverbs.RemoteWrite)
	e.send(t, ibverbs.SendWR{ID: 3, Op: ibverbs.OpBindMW, Bind: &bind})
	_, err = e.qp.PostRecv(ibverbs.RecvWR{ID: 4, SGL: []ibverbs.SGE{e.mem.SGE(2048, 64)}})
	ok(t, err)
	peer.say(t, bind.Remote().Addr, bind.Remote().RKey)
	wc := e.wait(t)
	if wc.ID != 4 || wc.Status != ibverbs.Success || wc.Flags&ibverbs.WCWithInv == 0 || wc.Imm != bind.RKey {
		t.Errorf("completion %+v, want one that takes key %#x back", wc, bind.RKey)
	}
	if got := string(e.buf.Bytes()[1024:1030]); got != "from C" {
		t.Errorf("got %q through the window", got)
	}
	peer.hear(t, &text)
	if err := peer.end(); err != nil || text != "done" {
		t.Errorf("%q, %v", text, err)
	}
}

func ok(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// windowEnd is our end: a page of memory and a QP of type RC.
type windowEnd struct {
	at  hwtest.Place
	dev *ibverbs.Context
	pd  *ibverbs.PD
	cq  *ibverbs.CQ
	buf *mr.Buffer
	mem *ibverbs.MR
	qp  *ibverbs.QP
}

func openWindows(t *testing.T, at hwtest.Place) *windowEnd {
	t.Helper()
	e := &windowEnd{at: at, dev: at.Open(t)}
	if err := e.dev.Probe(ibverbs.FeatureMW2); err != nil {
		t.Skip(err)
	}
	var err error
	e.pd, err = e.dev.AllocPD()
	ok(t, err)
	e.cq, err = e.dev.CreateCQ(16)
	ok(t, err)
	e.buf, err = mr.Alloc(4096)
	ok(t, err)
	e.mem, err = e.pd.RegMR(e.buf, ibverbs.LocalWrite|ibverbs.MWBind)
	ok(t, err)
	e.qp, err = e.pd.CreateQP(ibverbs.QPConfig{SendCQ: e.cq, RecvCQ: e.cq, Cap: ibverbs.QPCap{SendWR: 8, RecvWR: 8, SendSGE: 1, RecvSGE: 1}})
	ok(t, err)
	return e
}

// close closes the context with all that is left, and then the memory.
func (e *windowEnd) close(t *testing.T) {
	if err := errors.Join(e.dev.Close(), e.buf.Close()); err != nil {
		t.Error(err)
	}
}

func (e *windowEnd) connect(t *testing.T, qpn uint32, gid ibverbs.GID) {
	t.Helper()
	ok(t, e.qp.Modify(&ibverbs.QPAttr{State: ibverbs.StateInit, Port: e.at.Port, Access: ibverbs.RemoteWrite},
		ibverbs.QPStateMask|ibverbs.QPPKeyIndex|ibverbs.QPPort|ibverbs.QPAccessFlags))
	ok(t, e.qp.Modify(&ibverbs.QPAttr{State: ibverbs.StateRTR, PathMTU: e.at.MTU, DestQPN: qpn, MaxDestRdAtomic: 1, MinRNRTimer: 12,
		AH: ibverbs.AHAttr{DGID: gid, SGIDIndex: e.at.GID.Index, Port: e.at.Port, HopLimit: 64, IsGlobal: true}},
		ibverbs.QPStateMask|ibverbs.QPAV|ibverbs.QPPathMTU|ibverbs.QPDestQPN|ibverbs.QPRQPSN|ibverbs.QPMaxDestRdAtomic|ibverbs.QPMinRNRTimer))
	ok(t, e.qp.Modify(&ibverbs.QPAttr{State: ibverbs.StateRTS, Timeout: 18, RetryCnt: 6, RNRRetry: 7, MaxRdAtomic: 1},
		ibverbs.QPStateMask|ibverbs.QPTimeout|ibverbs.QPRetryCnt|ibverbs.QPRNRRetry|ibverbs.QPSQPSN|ibverbs.QPMaxQPRdAtomic))
}

// send posts a request and waits for it.
func (e *windowEnd) send(t *testing.T, wr ibverbs.SendWR) {
	t.Helper()
	wr.Flags |= ibverbs.Signaled
	_, err := e.qp.PostSend(wr)
	ok(t, err)
	if wc := e.wait(t); wc.ID != wr.ID || wc.Status != ibverbs.Success {
		t.Fatalf("completion %+v (%v) of request %d", wc, wc.Status, wr.ID)
	}
}

func (e *windowEnd) wait(t *testing.T) ibverbs.WC {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	var wcs [1]ibverbs.WC
	_, err := e.cq.Wait(ctx, wcs[:])
	ok(t, err)
	return wcs[0]
}

// pyverbs is the program at the other end.
type pyverbs struct {
	cmd    *exec.Cmd
	lines  *bufio.Reader
	words  func(a ...any) error
	said   bytes.Buffer
	cancel context.CancelFunc
}

func startPyverbs(t *testing.T, at hwtest.Place) *pyverbs {
	t.Helper()
	const python = "/usr/bin/python3" // for which distributions build the bindings
	if _, err := exec.LookPath(python); err != nil {
		t.Skip("needs python3-pyverbs")
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	p := &pyverbs{cancel: cancel}
	p.cmd = exec.CommandContext(ctx, python, "testdata/window.py", at.Device, strconv.Itoa(at.Port), strconv.Itoa(at.GID.Index), strconv.Itoa(int(at.MTU)))
	in, err := p.cmd.StdinPipe()
	ok(t, err)
	out, err := p.cmd.StdoutPipe()
	ok(t, err)
	p.cmd.Stderr = &p.said
	p.lines = bufio.NewReader(out)
	p.words = func(a ...any) error { _, err := fmt.Fprintln(in, a...); return err }
	ok(t, p.cmd.Start())
	t.Cleanup(func() { _ = p.end() })
	return p
}

func (p *pyverbs) say(t *testing.T, a ...any) {
	t.Helper()
	if err := p.words(a...); err != nil {
		t.Fatalf("%v\n%s", errors.Join(err, p.end()), &p.said)
	}
}

// hear reads a line of words.
func (p *pyverbs) hear(t *testing.T, a ...any) {
	t.Helper()
	line, err := p.lines.ReadString('\n')
	if err != nil {
		err = p.end()
		if exit := (*exec.ExitError)(nil); errors.As(err, &exit) && exit.ExitCode() == 77 {
			t.Skipf("needs python3-pyverbs: %s", &p.said)
		}
		t.Fatalf("the program in Python ended: %v\n%s", err, &p.said)
	}
	if _, err := fmt.Sscan(strings.TrimSpace(line), a...); err != nil {
		t.Fatalf("%q: %v", line, err)
	}
}

// end waits for the program, once.
func (p *pyverbs) end() error {
	defer p.cancel()
	if p.cmd.ProcessState != nil {
		return nil
	}
	return p.cmd.Wait()
}
