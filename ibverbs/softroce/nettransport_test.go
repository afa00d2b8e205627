package softroce_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"hash/crc32"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/netip"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/purerdma/purerdma/ibverbs"
	"github.com/purerdma/purerdma/ibverbs/softroce"
	"github.com/purerdma/purerdma/mr"
	"github.com/purerdma/purerdma/nettransport"
	"github.com/purerdma/purerdma/socketboot"
)

// job is a connection between two processes. Both make the same plan of messages by
// the seed; the receiver is told of each the checksum by nobody, it makes it too.
type job struct {
	Addr   string // of the device, an address of loopback
	Handle string // of the receiver, for the sender
	QPs    int
	Split  bool
	Seed   uint64
}

const (
	patience = 60 * time.Second
	inFlight = 4 // groups
	maxSize  = 1 << 20
	slotSize = nettransport.MaxRecvs * 64 << 10
	memory   = inFlight * (maxSize + slotSize)
)

// group is messages that one Irecv offers, sent in another order.
type group struct{ sizes, order []int }

// plan is 1,000 messages: all sizes at which something changes, groups of 8 small
// ones, the others of random sizes up to 1 MiB, half of them short.
func (j job) plan() []group {
	g := rand.New(rand.NewPCG(j.Seed, 5))
	var list []group
	add := func(sizes ...int) { list = append(list, group{sizes, g.Perm(len(sizes))}) }
	for _, n := range []int{0, 1, 127, 128, 129, 8191, 8192, 8193, maxSize - 1, maxSize} {
		add(n)
	}
	for _, unit := range []int{128 * j.QPs, 4096, 4096 * j.QPs, 2 * 4096 * j.QPs} {
		for d := -1; d <= 1; d++ {
			add(unit + d)
		}
	}
	for range 60 {
		var sizes []int
		for range nettransport.MaxRecvs {
			sizes = append(sizes, g.IntN(64<<10))
		}
		add(sizes...)
	}
	for n := 60*nettransport.MaxRecvs + len(list) - 60; n < 1000; n++ {
		if g.IntN(2) == 0 {
			add(g.IntN(8 << 10))
		} else {
			add(g.IntN(maxSize + 1))
		}
	}
	g.Shuffle(len(list), func(i, k int) { list[i], list[k] = list[k], list[i] })
	return list
}

// content fills b with what message m of group g is.
func (j job) content(b []byte, g, m int) uint32 {
	r := rand.New(rand.NewPCG(j.Seed^uint64(g)<<8, uint64(m)))
	for i := range b {
		if i%512 == 0 || i > len(b)-8 {
			b[i] = byte(r.Uint32())
		} else {
			b[i] = b[i-1]*5 + byte(i)
		}
	}
	return crc32.ChecksumIEEE(b)
}

// side is one end of the connection.
type side struct {
	job
	dev *ibverbs.Context
	tr  *nettransport.Transport
	buf *mr.Buffer
	mr  *nettransport.MR
}

func (j job) open() (*side, error) {
	quiet := slog.New(slog.DiscardHandler)
	drv := softroce.New(softroce.Config{Addrs: []netip.Addr{netip.MustParseAddr(j.Addr)}})
	dev, err := ibverbs.Open(j.Addr, ibverbs.WithDrivers(drv), ibverbs.WithLogger(quiet))
	if err != nil {
		return nil, err
	}
	tr, err := nettransport.New(nettransport.Config{
		NICs: []nettransport.NIC{{{Device: dev}}}, QPsPerConn: j.QPs, Split: j.Split, Log: quiet,
		Net: socketboot.Net{Bind: netip.MustParseAddrPort("127.0.0.1:0")},
	})
	if err != nil {
		return nil, err
	}
	buf, err := mr.Alloc(memory)
	return &side{job: j, dev: dev, tr: tr, buf: buf}, err
}

func (s *side) close(c io.Closer) error {
	for _, x := range []io.Closer{c, s.tr, s.buf} {
		if err := x.Close(); err != nil {
			return err
		}
	}
	if left := s.dev.Objects(); len(left) > 0 {
		return fmt.Errorf("left open: %v", left)
	}
	return s.dev.Close()
}

func until(what string, f func() (bool, error)) error {
	for end := time.Now().Add(patience); ; runtime.Gosched() {
		if ok, err := f(); ok || err != nil {
			return err
		}
		if time.Now().After(end) {
			return fmt.Errorf("%s: nothing in %v", what, patience)
		}
	}
}

// slot is where the messages of group g lie.
func slot(g int) int { return g % inFlight * (maxSize + slotSize) }

func (s *side) send(c *nettransport.SendComm) error {
	var pending [inFlight][]nettransport.Request
	finish := func(g int) error {
		for _, r := range pending[g%inFlight] {
			if err := until("send", func() (bool, error) { return r.Test(nil) }); err != nil {
				return err
			}
		}
		pending[g%inFlight] = nil
		return nil
	}
	for g, gr := range s.plan() {
		if err := finish(g); err != nil {
			return err
		}
		at, off := slot(g), make([]int, len(gr.sizes))
		for m, n := range gr.sizes {
			off[m] = at
			s.content(s.buf.Bytes()[at:at+n], g, m)
			at += n
		}
		for _, m := range gr.order {
			err := until("credit", func() (bool, error) {
				r, ok, err := c.Isend(nettransport.Buffer{MR: s.mr, Off: off[m], N: gr.sizes[m], Tag: int32(m)})
				if ok {
					pending[g%inFlight] = append(pending[g%inFlight], r)
				}
				return ok, err
			})
			if err != nil {
				return err
			}
		}
	}
	for g := range inFlight {
		if err := finish(g); err != nil {
			return err
		}
	}
	return nil
}

func (s *side) receive(c *nettransport.RecvComm) error {
	plan := s.plan()
	rs := make([]nettransport.Request, len(plan))
	offer := func(g int) error {
		var bs []nettransport.Buffer
		at := slot(g)
		for m, n := range plan[g].sizes {
			bs = append(bs, nettransport.Buffer{MR: s.mr, Off: at, N: n, Tag: int32(m)})
			at += n
		}
		return until("receive", func() (ok bool, err error) { rs[g], ok, err = c.Irecv(bs...); return ok, err })
	}
	for g := range inFlight {
		if err := offer(g); err != nil {
			return err
		}
	}
	want := make([]byte, maxSize)
	for g, gr := range plan {
		sizes := make([]int, len(gr.sizes))
		if err := until("message", func() (bool, error) { return rs[g].Test(sizes) }); err != nil {
			return fmt.Errorf("group %d: %w", g, err)
		}
		at := slot(g)
		for m, n := range gr.sizes {
			if sum := s.content(want[:n], g, m); sizes[m] != n || crc32.ChecksumIEEE(s.buf.Bytes()[at:at+n]) != sum {
				return fmt.Errorf("group %d, message %d of %d bytes: %d came, or others", g, m, n, sizes[m])
			}
			at += n
		}
		if g+inFlight < len(plan) {
			if err := offer(g + inFlight); err != nil {
				return err
			}
		}
	}
	return nil
}

// child is the receiver. It tells its handle.
func (j job) child() error {
	s, err := j.open()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	l, err := s.tr.Listen(ctx, 0)
	if err != nil {
		return err
	}
	h := l.Handle()
	fmt.Println(hex.EncodeToString(h[:]))
	c, err := l.Accept(ctx)
	if err != nil {
		return err
	}
	if err := l.Close(); err != nil {
		return err
	}
	if s.mr, err = c.RegMR(s.buf); err != nil {
		return err
	}
	if err := s.receive(c); err != nil {
		return err
	}
	return s.close(c)
}

func init() {
	softroce.RunChild = func(text string) int {
		var j job
		err := json.Unmarshal([]byte(text), &j)
		if err == nil {
			err = j.child()
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, "receiver:", err)
			return 1
		}
		return 0
	}
}

// TestNetTransport moves 1,000 messages from this process to another, by each number
// of queue pairs and both split modes.
func TestNetTransport(t *testing.T) {
	for _, qps := range []int{1, 4, 8} {
		for _, split := range []bool{false, true} {
			t.Run(fmt.Sprintf("%d QPs, split %v", qps, split), func(t *testing.T) {
				j := job{Addr: "127.0.0.112", QPs: qps, Split: split, Seed: rand.Uint64()}
				t.Logf("seed %d", j.Seed)
				run(t, j)
			})
		}
	}
}

func run(t *testing.T, j job) {
	text, err := json.Marshal(j)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, os.Args[0], "-test.run=^$")
	cmd.Env = append(os.Environ(), softroce.ChildEnv+"="+string(text))
	var errs bytes.Buffer
	cmd.Stderr = &errs
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	handle, err := bufio.NewReader(out).ReadString('\n')
	if err == nil {
		err = func() error {
			j.Addr, j.Handle = "127.0.0.111", strings.TrimSpace(handle)
			return j.parent(ctx)
		}()
	}
	if err != nil {
		cancel()
	}
	if ended := cmd.Wait(); err != nil || ended != nil {
		t.Fatalf("sender: %v; receiver: %v\n%s", err, ended, errs.String())
	}
}

// parent is the sender.
func (j job) parent(ctx context.Context) error {
	s, err := j.open()
	if err != nil {
		return err
	}
	var h nettransport.Handle
	if b, err := hex.DecodeString(j.Handle); err != nil || copy(h[:], b) != len(h) {
		return fmt.Errorf("handle %q: %v", j.Handle, err)
	}
	c, err := s.tr.Connect(ctx, 0, h)
	if err != nil {
		return err
	}
	if s.mr, err = c.RegMR(s.buf); err != nil {
		return err
	}
	if err := s.send(c); err != nil {
		return err
	}
	return s.close(c)
}
