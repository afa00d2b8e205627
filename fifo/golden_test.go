package fifo

import (
	"encoding/binary"
	"encoding/hex"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// trace is a recording of NCCL 2.25.1: what it wrote into the rings, and what
// stood in them.
type trace struct {
	sent []sent // RDMA writes of rows
	seen []seen // rows in the rings that the peer writes
}

type sent struct {
	ring      string // "cts_fifo" or "sizes_fifo"
	off, size int
	rows      []byte
}

type seen struct {
	ring string // "CTS" or "sizes"
	row  int
	rows []byte
}

var (
	headLine = regexp.MustCompile(`^== (\S+)`)
	sendLine = regexp.MustCompile(`^[SR] post_send .* len=(\d+) to=(cts_fifo|sizes_fifo)\+(\d+)`)
	seenLine = regexp.MustCompile(`^[SR] row (\d+) of the (CTS|sizes) FIFO`)
	dataLine = regexp.MustCompile(`^    (cts|row|sizes)\+\d+\s+(.*)$`)
)

func traces(t *testing.T) map[string]*trace {
	t.Helper()
	text, err := os.ReadFile("testdata/nccl-2.25.1/datapath.txt")
	if err != nil {
		t.Fatal(err)
	}
	number := func(s string) int {
		n, err := strconv.Atoi(s)
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	all := map[string]*trace{}
	var cur *trace
	var rows *[]byte
	for line := range strings.Lines(string(text)) {
		line = strings.TrimRight(line, "\n")
		if m := headLine.FindStringSubmatch(line); m != nil {
			cur = &trace{}
			all[m[1]] = cur
		} else if m := sendLine.FindStringSubmatch(line); m != nil {
			cur.sent = append(cur.sent, sent{ring: m[2], off: number(m[3]), size: number(m[1])})
			rows = &cur.sent[len(cur.sent)-1].rows
		} else if m := seenLine.FindStringSubmatch(line); m != nil {
			cur.seen = append(cur.seen, seen{ring: m[2], row: number(m[1])})
			rows = &cur.seen[len(cur.seen)-1].rows
		} else if m := dataLine.FindStringSubmatch(line); m != nil {
			b, err := hex.DecodeString(strings.ReplaceAll(m[2], " ", ""))
			if err != nil {
				t.Fatal(err)
			}
			*rows = append(*rows, b...)
		}
	}
	return all
}

// fields reads offers at the offsets of the fact sheet, not by our structures.
func fields(rows []byte) (offers []CTS) {
	le := binary.LittleEndian
	for b := range slices.Chunk(rows, 64) {
		c := CTS{Addr: le.Uint64(b), Size: le.Uint64(b[8:]), NReqs: le.Uint32(b[32:]), Tag: le.Uint32(b[36:]), Idx: le.Uint64(b[40:])}
		for i := range 4 {
			c.RKeys[i] = le.Uint32(b[16+4*i:])
		}
		offers = append(offers, c)
	}
	return offers
}

func numbers(rows []byte) (sizes []int) {
	for b := range slices.Chunk(rows, 4) {
		sizes = append(sizes, int(int32(binary.LittleEndian.Uint32(b))))
	}
	return sizes
}

// TestGolden makes what NCCL sent, and takes what it left in our rings.
func TestGolden(t *testing.T) {
	const l = Layout225
	offered, took, told, heard := 0, 0, 0, 0
	for name, tr := range traces(t) {
		t.Run(name, func(t *testing.T) {
			staging, credits := newCreditStaging(t, l), newCredits(t, l)
			copies, sizes := newSizesStaging(t), newSizes(t, l)
			for _, s := range tr.sent {
				var off, n int
				var got []byte
				var err error
				var addr, k uint64
				if s.ring == "cts_fifo" {
					offers := fields(s.rows)
					k = offers[0].Idx - 1
					off, n, err = staging.Fill(k, offers)
					got, addr = staging.Buffer().Bytes(), l.CreditAddr(1<<20, k)
					offered++
				} else {
					k = uint64(s.off / 32)
					off, n, err = copies.Fill(k, numbers(s.rows))
					got, addr = copies.Buffer().Bytes(), l.SizesAddr(1<<20, k)
					told++
				}
				if err != nil {
					t.Fatal(err)
				}
				if addr != uint64(1<<20+s.off) || n != s.size {
					t.Errorf("message %d: %d bytes to %s+%d, want %d to +%d", k, n, s.ring, addr-1<<20, s.size, s.off)
				}
				if got = got[off : off+n]; !slices.Equal(got, s.rows) {
					t.Errorf("message %d:\n%x, want\n%x", k, got, s.rows)
				}
			}
			for _, s := range tr.seen {
				if s.ring == "CTS" {
					want := fields(s.rows)
					copy(credits.Buffer().Bytes()[s.row*512:], s.rows)
					var got [MaxRecvs]CTS
					n, err := credits.Peek(want[0].Idx-1, &got)
					if err != nil || !slices.Equal(got[:n], want) {
						t.Errorf("row %d: %v, %v, want %v", s.row, got[:n], err, want)
					}
					took++
					continue
				}
				want := numbers(s.rows)
				copy(sizes.Buffer().Bytes()[s.row*32:], s.rows)
				got, posted := make([]int, len(want)), slices.Repeat([]int{300}, len(want))
				if err := sizes.Read(uint64(s.row), posted, got); err != nil || !slices.Equal(got, want) {
					t.Errorf("row %d: %v, %v, want %v", s.row, got, err, want)
				}
				heard++
			}
		})
	}
	if offered < 10 || took < 10 || told < 4 || heard < 3 {
		t.Errorf("the recording had %d rows offered, %d taken, %d sizes told, %d heard: was it read?", offered, took, told, heard)
	}
}
