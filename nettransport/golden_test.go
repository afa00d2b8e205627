package nettransport

import (
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/purerdma/purerdma/ibverbs"
)

// recording is one end of one trace of NCCL's data path.
type recording struct {
	events      []event    // posts in order, without completions
	completions [][]string // by queue pair, in order
	rows        [][][]byte // offers, by message and buffer
	flushes     int
}

// event is a post of NCCL's, in the form in which ours are compared with it.
type event struct {
	text string // "send qp[0] wr#1 WRITE_IMM SIGNALED no-sge to=0x0 key=0 imm=9000"
	wr   goldenWR
	qp   int
	recv bool
}

// goldenWR is the numbers of a recorded send request.
type goldenWR struct {
	index    int
	op       ibverbs.Opcode
	signaled bool
	length   int // -1 without an entry
	to       string
	rkey     uint32
	imm      uint32
	bytes    []byte // of the offers or sizes that it carries
}

var (
	postLine = regexp.MustCompile(`^([RSF]) post_send qp\[(\d+)\] wr#(\d+) (\w+)( SIGNALED)? wr_id=\w+ (?:len=(\d+)|no-sge) to=(\S+) rkey=0x(\w+)(?: imm=0x(\w+))?$`)
	recvLine = regexp.MustCompile(`^R post_recv qp\[(\d+)\] wr_id=\w+ num_sge=0$`)
	compLine = regexp.MustCompile(`^([RSF]) completion qp\[(\d+)\] wr_id=\w+ status=0 opcode=(\d+)(?: byte_len=(\d+) imm=0x(\w+) flags=3)?$`)
	rowLine  = regexp.MustCompile(`^S row (\d+) of the CTS FIFO when first seen$`)
	dataLine = regexp.MustCompile(`^    (cts|row|sizes)\+(\d+)\s+([0-9a-f ]+)$`)
)

// recordings reads testdata/…/datapath.txt.
func recordings(t testing.TB) map[string]*recording {
	t.Helper()
	text, err := os.ReadFile("testdata/nccl-2.25.1/datapath.txt")
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]*recording{}
	var r *recording
	row := -1
	for line := range strings.SplitSeq(string(text), "\n") {
		if name, ok := strings.CutPrefix(line, "== "); ok {
			r, row = &recording{completions: make([][]string, 8)}, -1
			all[name] = r
			continue
		}
		if r == nil || line == "" {
			continue
		}
		number := func(s string, base int) int {
			n, err := strconv.ParseUint(s, base, 64)
			if err != nil {
				t.Fatalf("%q: %v", line, err)
			}
			return int(n)
		}
		switch m := match(line); {
		case m.recv != nil:
			q := number(m.recv[1], 10)
			r.events = append(r.events, event{qp: q, recv: true, text: fmt.Sprintf("recv qp[%d]", q)})
		case m.post != nil:
			p := m.post
			w := goldenWR{index: number(p[3], 10), signaled: p[5] != "", length: -1, to: p[7], rkey: uint32(number(p[8], 16))}
			switch p[4] {
			case "WRITE":
				w.op = ibverbs.OpWrite
			case "WRITE_IMM":
				w.op = ibverbs.OpWriteWithImm
			case "READ":
				w.op = ibverbs.OpRead
				r.flushes++
			default:
				t.Fatalf("%q: no such operation", line)
			}
			if p[6] != "" {
				w.length = number(p[6], 10)
			}
			if p[9] != "" {
				w.imm = uint32(number(p[9], 16))
			}
			if strings.HasPrefix(w.to, "cts_fifo+") {
				r.rows = append(r.rows, nil)
			}
			if p[1] != "F" {
				r.events = append(r.events, event{qp: number(p[2], 10), wr: w})
			}
		case m.comp != nil:
			c := m.comp
			if c[1] == "F" {
				continue
			}
			q := number(c[2], 10)
			text := "opcode=" + c[3]
			if c[4] != "" {
				text += fmt.Sprintf(" byte_len=%s imm=%d", c[4], number(c[5], 16))
			}
			r.completions[q] = append(r.completions[q], text)
		case m.row != nil:
			row = number(m.row[1], 10)
			r.rows = append(r.rows, nil)
		case m.data != nil:
			b, err := hex.DecodeString(strings.ReplaceAll(m.data[3], " ", ""))
			if err != nil {
				t.Fatal(err)
			}
			switch {
			case m.data[1] == "cts":
				r.rows[len(r.rows)-1] = append(r.rows[len(r.rows)-1], b)
				e := &r.events[len(r.events)-1]
				e.wr.bytes = append(e.wr.bytes, b...)
			case m.data[1] == "row" && row >= 0 && len(b) == 64:
				r.rows[row] = append(r.rows[row], b)
			case m.data[1] == "sizes":
				r.events[len(r.events)-1].wr.bytes = b
			}
		case strings.Contains(line, "of the sizes FIFO when done"):
		default:
			t.Fatalf("line not understood: %q", line)
		}
	}
	return all
}

type matches struct{ recv, post, comp, row, data []string }

func match(line string) matches {
	return matches{recvLine.FindStringSubmatch(line), postLine.FindStringSubmatch(line), compLine.FindStringSubmatch(line),
		rowLine.FindStringSubmatch(line), dataLine.FindStringSubmatch(line)}
}

// describe puts a send request into words that do not depend on addresses and keys: rows are the offers of the connection.
func describeWR(q int, w goldenWR, rows [][][]byte, keys map[uint32]string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "send qp[%d] wr#%d op=%d", q, w.index, w.op)
	if w.signaled {
		b.WriteString(" signaled")
	}
	fmt.Fprintf(&b, " len=%d to=%s key=%s", w.length, place(w.to, rows), keyName(w, rows, keys))
	if w.op == ibverbs.OpWriteWithImm {
		fmt.Fprintf(&b, " imm=%d", w.imm)
	}
	if len(w.bytes) > 0 {
		b.WriteString(" ")
		if strings.HasPrefix(w.to, "cts") {
			for i := 0; i < len(w.bytes); i += 64 {
				b.WriteString(maskOffer(w.bytes[i:i+64]) + " ")
			}
		} else {
			b.WriteString(hex.EncodeToString(w.bytes))
		}
	}
	return b.String()
}

// place names the buffer that an address lies in or begins behind, by message and buffer.
func place(to string, rows [][][]byte) string {
	n, err := strconv.ParseUint(strings.TrimPrefix(to, "0x"), 16, 64)
	if err != nil || n == 0 {
		return to
	}
	best, name := uint64(1<<20), "nowhere"
	for i, row := range rows {
		for j, offer := range row {
			if base := binary.LittleEndian.Uint64(offer); n >= base && n-base < best {
				best, name = n-base, fmt.Sprintf("message %d buffer %d +%d", i, j, n-base)
			}
		}
	}
	return name
}

// keyName says of a key which of an offer's it is, or tells the keys of the rings apart.
func keyName(w goldenWR, rows [][][]byte, keys map[uint32]string) string {
	if w.rkey == 0 {
		return "0"
	}
	for _, row := range rows {
		for _, offer := range row {
			for d := range 4 {
				if binary.LittleEndian.Uint32(offer[16+4*d:]) == w.rkey {
					return fmt.Sprintf("data of device %d", d)
				}
			}
		}
	}
	if keys[w.rkey] == "" {
		keys[w.rkey] = fmt.Sprintf("ring %d", len(keys))
	}
	return keys[w.rkey]
}

// maskOffer hides the address and which keys they are, but not how many.
func maskOffer(b []byte) string {
	s := "addr "
	for d := range 4 {
		if binary.LittleEndian.Uint32(b[16+4*d:]) != 0 {
			s += "key "
		} else {
			s += "0 "
		}
	}
	return s + hex.EncodeToString(b[8:16]) + " " + hex.EncodeToString(b[32:])
}

// lines gives the posts of a recording in words.
func (r *recording) lines(rows [][][]byte) []string {
	keys := map[uint32]string{}
	var out []string
	for _, e := range r.events {
		if e.recv {
			out = append(out, e.text)
			continue
		}
		out = append(out, describeWR(e.qp, e.wr, rows, keys))
	}
	return out
}

// script is what the ends did in a trace, with the sizes that were sent, by message.
type script struct {
	name  string
	qps   int
	split bool
	ar    Toggle
	devs  int
	flush bool
	sizes [][]int
}

var scripts = []script{
	{name: "trace-ar", qps: 1, ar: On, devs: 1, sizes: [][]int{{9000}, {9000}}},
	{name: "trace-flush", qps: 1, devs: 1, flush: true, sizes: [][]int{{100}, {100}}},
	{name: "trace-merged2", qps: 1, devs: 2, sizes: [][]int{{300, 300}}},
	{name: "trace-qps1", qps: 1, devs: 1, sizes: [][]int{{0}, {1}, {127}, {128}}},
	{name: "trace-qps4-split1", qps: 4, split: true, devs: 1, sizes: [][]int{{1000}}},
	{name: "trace-qps8-multi2", qps: 8, devs: 1, sizes: [][]int{{300, 300}, {300, 300}}},
	{name: "trace-small-share", qps: 4, split: true, devs: 1, sizes: [][]int{{100}, {100}}},
}

func (s *script) config() Config {
	return Config{QPsPerConn: s.qps, Split: s.split, AdaptiveRouting: s.ar, Flush: s.flush}
}

// offerOf is the tag and the room of a recorded offer.
func offerOf(row []byte) (tag int32, room int) {
	le := binary.LittleEndian
	return int32(le.Uint32(row[36:])), int(le.Uint64(row[8:]))
}

// ours gives what was posted on a connection's queue pairs, in words as those of a recording.
func ours(t testing.TB, c *Comm, posts []post, staging []byte, at uint64, rows [][][]byte) []string {
	t.Helper()
	number := map[uint32]int{}
	for i := range c.lanes {
		number[c.lanes[i].qp.Num()] = i
	}
	ring := "cts_fifo"
	if !c.receives {
		ring = "sizes_fifo"
	}
	keys := map[uint32]string{}
	var out []string
	for _, p := range posts {
		q, known := number[p.qpn]
		if !known {
			continue // of the other end, or a flush
		}
		for range p.recv {
			out = append(out, fmt.Sprintf("recv qp[%d]", q))
		}
		for i, w := range p.send {
			g := goldenWR{index: i, op: w.Op, signaled: w.Flags&ibverbs.Signaled != 0, length: -1, rkey: w.Remote.RKey,
				to: fmt.Sprintf("%#x", w.Remote.Addr), imm: c.order(w.Imm)}
			if len(w.SGL) > 0 {
				g.length = int(w.SGL[0].Length)
			}
			if off := w.Remote.Addr - c.peerMeta.FIFOAddr; off < 256*512 {
				g.to = fmt.Sprintf("%s+%d", ring, off)
			}
			if len(w.SGL) > 0 && w.SGL[0].Addr-at < uint64(len(staging)) {
				g.bytes = staging[w.SGL[0].Addr-at:][:g.length]
			}
			out = append(out, describeWR(q, g, rows, keys))
		}
	}
	return out
}
