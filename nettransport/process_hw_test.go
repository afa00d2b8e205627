//go:build hw

package nettransport

import (
	"bufio"
	"bytes"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/purerdma/purerdma/ibverbs"
	"github.com/purerdma/purerdma/internal/hwtest"
	"github.com/purerdma/purerdma/mr"
	"github.com/purerdma/purerdma/qp"
)

// job is what the other process is told to do.
type job struct {
	Role     string // "send" or "receive"
	Device   string
	Port     int
	GIDIndex int
	QPs      int
	Split    bool
	Handle   string // of the receiver, in hexadecimal, for a sender
	Seed     uint64
	MTU      int
	Endless  bool // send or receive until killed
}

func (j job) config() Config {
	return Config{QPsPerConn: j.QPs, Split: j.Split, QP: []qp.Option{qp.WithGIDIndex(j.GIDIndex)}, Net: localNet(), Log: quiet}
}

// message is one of the plan that both processes make by seed.
type message struct{ tag, size int }

// group is what one Irecv offers, in the order of offers, and the order in which the sender sends.
type group struct {
	messages []message
	order    []int
}

// plan is all edge sizes, random sizes up to 64 KiB, a few large messages, and groups of 8 with tags out of order.
func (j job) plan() []group {
	r := rand.New(rand.NewPCG(j.Seed, 5))
	var sizes []int
	sizes = append(sizes, 0, 1, 127, 128, 129, j.MTU-1, j.MTU, j.MTU+1, 8191, 8192, 8193)
	for _, n := range []int{128 * j.QPs, j.MTU * j.QPs, 2 * j.MTU * j.QPs} {
		sizes = append(sizes, n-1, n, n+1)
	}
	for range 40 {
		sizes = append(sizes, r.IntN(64<<10))
	}
	sizes = append(sizes, 1<<20, 1<<20+1)
	var gs []group
	for _, n := range sizes {
		gs = append(gs, group{[]message{{tag: r.IntN(1000), size: n}}, []int{0}})
	}
	for range 12 {
		var g group
		for tag := range MaxRecvs {
			g.messages = append(g.messages, message{tag, r.IntN(4096)})
		}
		g.order = r.Perm(MaxRecvs)
		gs = append(gs, g)
	}
	r.Shuffle(len(gs), func(i, k int) { gs[i], gs[k] = gs[k], gs[i] })
	return gs
}

// depth is how many groups are in flight.
const depth = 6

// slot is the memory of a group in flight.
const slotSize = 1<<20 + 64<<10

func (j job) content(g, m, n int) []byte {
	b := make([]byte, n)
	random(b, j.Seed^uint64(g)<<8^uint64(m))
	return b
}

// connected is one end in this process.
type connected struct {
	dev *ibverbs.Context
	tr  *Transport
	buf *mr.Buffer
	mr  *MR
}

func (j job) open() (*connected, error) {
	dev, err := ibverbs.Open(j.Device, ibverbs.WithLogger(quiet))
	if err != nil {
		return nil, err
	}
	c := j.config()
	c.NICs = []NIC{{{Device: dev, Number: j.Port}}}
	tr, err := New(c)
	if err != nil {
		return nil, errors.Join(err, dev.Close())
	}
	buf, err := mr.Alloc(depth * slotSize)
	return &connected{dev: dev, tr: tr, buf: buf}, err
}

func (e *connected) close(c interface{ Close() error }) error {
	err := errors.Join(c.Close(), e.tr.Close(), e.buf.Close())
	if left := e.dev.Objects(); len(left) > 0 {
		err = errors.Join(err, fmt.Errorf("left open: %v", left))
	}
	return errors.Join(err, e.dev.Close())
}

// deadline is for one step of either end.
const deadline = 60 * time.Second

func until(what string, f func() (bool, error)) error {
	for end := time.Now().Add(deadline); ; runtime.Gosched() {
		if ok, err := f(); ok || err != nil {
			return err
		}
		if time.Now().After(end) {
			return fmt.Errorf("%s: nothing in %v", what, deadline)
		}
	}
}

// send sends the plan, or one message again and again.
func (j job) send(c *SendComm, e *connected) error {
	if j.Endless {
		return endless(func() (Request, bool, error) { return c.Isend(Buffer{MR: e.mr, N: 32 << 10, Tag: 7}) })
	}
	inFlight := map[int][]Request{}
	for g, gr := range j.plan() {
		for _, r := range inFlight[g-depth] {
			if err := until("send", func() (bool, error) { return r.Test(nil) }); err != nil {
				return err
			}
		}
		delete(inFlight, g-depth)
		off := make([]int, len(gr.messages))
		at := g % depth * slotSize
		for i, m := range gr.messages {
			off[i] = at
			copy(e.buf.Bytes()[at:], j.content(g, i, m.size))
			at += m.size
		}
		for _, i := range gr.order {
			m := gr.messages[i]
			err := until("credit", func() (bool, error) {
				r, ok, err := c.Isend(Buffer{MR: e.mr, Off: off[i], N: m.size, Tag: int32(m.tag)})
				if ok {
					inFlight[g] = append(inFlight[g], r)
				}
				return ok, err
			})
			if err != nil {
				return err
			}
		}
	}
	for _, rs := range inFlight {
		for _, r := range rs {
			if err := until("send", func() (bool, error) { return r.Test(nil) }); err != nil {
				return err
			}
		}
	}
	return nil
}

// receive receives the plan and compares every byte, in order.
func (j job) receive(c *RecvComm, e *connected) error {
	if j.Endless {
		return endless(func() (Request, bool, error) { return c.Irecv(Buffer{MR: e.mr, N: 32 << 10, Tag: 7}) })
	}
	plan := j.plan()
	rs := make([]Request, len(plan))
	offer := func(g int) error {
		var bs []Buffer
		at := g % depth * slotSize
		for _, m := range plan[g].messages {
			bs = append(bs, Buffer{MR: e.mr, Off: at, N: m.size, Tag: int32(m.tag)})
			at += m.size
		}
		clear(e.buf.Bytes()[g%depth*slotSize:][:slotSize])
		return until("receive", func() (ok bool, err error) { rs[g], ok, err = c.Irecv(bs...); return ok, err })
	}
	for g := range min(depth, len(plan)) {
		if err := offer(g); err != nil {
			return err
		}
	}
	for g := range plan {
		sizes := make([]int, len(plan[g].messages))
		if err := until("message", func() (bool, error) { return rs[g].Test(sizes) }); err != nil {
			return fmt.Errorf("group %d: %w", g, err)
		}
		at := g % depth * slotSize
		for i, m := range plan[g].messages {
			if sizes[i] != m.size || !bytes.Equal(e.buf.Bytes()[at:][:m.size], j.content(g, i, m.size)) {
				return fmt.Errorf("group %d, message %d of %d bytes, tag %d: %d came, or others", g, i, m.size, m.tag, sizes[i])
			}
			at += m.size
		}
		if g+depth < len(plan) {
			if err := offer(g + depth); err != nil {
				return err
			}
		}
	}
	return nil
}

// endless keeps a few requests in flight until the connection fails, and returns its error.
func endless(start func() (Request, bool, error)) error {
	var rs []Request
	for {
		if len(rs) < depth {
			r, ok, err := start()
			if err != nil {
				return err
			}
			if ok {
				rs = append(rs, r)
			}
		}
		for i := 0; i < len(rs); i++ {
			done, err := rs[i].Test(nil)
			if err != nil {
				return err
			}
			if done {
				rs = append(rs[:i], rs[i+1:]...)
				i--
			}
		}
		runtime.Gosched()
	}
}

func init() {
	runChild = func(text string) int {
		var j job
		err := json.Unmarshal([]byte(text), &j)
		if err == nil {
			err = j.child()
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, "other process:", err)
			return 1
		}
		return 0
	}
}

// child is all that the other process does. It tells "handle …" if it listens, and "up" when it is connected.
func (j job) child() error {
	e, err := j.open()
	if err != nil {
		return err
	}
	ctx, cancel := timeoutContext()
	defer cancel()
	if j.Role == "send" {
		var h Handle
		if b, err := hex.DecodeString(j.Handle); err != nil || copy(h[:], b) != len(h) {
			return fmt.Errorf("handle %q: %v", j.Handle, err)
		}
		c, err := e.tr.Connect(ctx, 0, h)
		if err != nil {
			return err
		}
		if e.mr, err = c.RegMR(e.buf); err != nil {
			return err
		}
		fmt.Println("up")
		if err := j.send(c, e); err != nil {
			return err
		}
		return e.close(c)
	}
	l, err := e.tr.Listen(ctx, 0)
	if err != nil {
		return err
	}
	h := l.Handle()
	fmt.Println("handle", hex.EncodeToString(h[:]))
	c, err := l.Accept(ctx)
	if err != nil {
		return err
	}
	if err := l.Close(); err != nil {
		return err
	}
	if e.mr, err = c.RegMR(e.buf); err != nil {
		return err
	}
	fmt.Println("up")
	if err := j.receive(c, e); err != nil {
		return err
	}
	return e.close(c)
}

// other is the other process.
type other struct {
	t     *testing.T
	cmd   *exec.Cmd
	lines *bufio.Reader
	errs  bytes.Buffer
}

func startOther(t *testing.T, j job) *other {
	t.Helper()
	text, err := json.Marshal(j)
	if err != nil {
		t.Fatal(err)
	}
	o := &other{t: t, cmd: exec.Command(os.Args[0], "-test.run=^$")}
	o.cmd.Env = append(os.Environ(), childEnv+"="+string(text))
	o.cmd.Stderr = &o.errs
	out, err := o.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	o.lines = bufio.NewReader(out)
	if err := o.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(o.kill)
	return o
}

// line reads what the other process tells.
func (o *other) line(word string) string {
	o.t.Helper()
	s, err := o.lines.ReadString('\n')
	rest, ok := strings.CutPrefix(strings.TrimSpace(s), word)
	if err != nil || !ok {
		o.kill()
		o.t.Fatalf("the other process told %q, not %q (%v)\n%s", s, word, err, o.errs.String())
	}
	return strings.TrimSpace(rest)
}

func (o *other) kill() {
	if o.cmd.ProcessState == nil {
		_ = o.cmd.Process.Kill()
		_ = o.cmd.Wait()
	}
}

// end wants the other process to end well.
func (o *other) end() {
	o.t.Helper()
	_, _ = io.Copy(io.Discard, o.lines)
	if err := o.cmd.Wait(); err != nil {
		o.t.Fatalf("%v\n%s", err, o.errs.String())
	}
}

// jobs is one job for each end, between two places.
func jobs(a, b hwtest.Place, j job) (send, recv job) {
	j.MTU = min(a.MTU, b.MTU).Bytes()
	send, recv = j, j
	send.Role, send.Device, send.Port, send.GIDIndex = "send", a.Device, a.Port, a.GID.Index
	recv.Role, recv.Device, recv.Port, recv.GIDIndex = "receive", b.Device, b.Port, b.GID.Index
	return send, recv
}
