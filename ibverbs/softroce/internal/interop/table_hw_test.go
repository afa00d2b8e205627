//go:build hw && linux

package interop

import (
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"

	"github.com/purerdma/purerdma/ibverbs"
)

// row is one line of the table.
type row struct {
	transport ibverbs.QPType
	op        ibverbs.Opcode
	class     int // of its size
	mtu       ibverbs.MTU
	v6        bool
	loss      bool // 1 % of the packets each way
	softSends bool // softroce is the requester
}

// The columns.
var (
	rcOps = []ibverbs.Opcode{ibverbs.OpSend, ibverbs.OpSendWithImm, ibverbs.OpSendWithInv, ibverbs.OpWrite, ibverbs.OpWriteWithImm,
		ibverbs.OpRead, ibverbs.OpFetchAdd, ibverbs.OpCmpSwap}
	ucOps = []ibverbs.Opcode{ibverbs.OpSend, ibverbs.OpSendWithImm, ibverbs.OpWrite, ibverbs.OpWriteWithImm}
	udOps = []ibverbs.Opcode{ibverbs.OpSend, ibverbs.OpSendWithImm}
	mtus  = []ibverbs.MTU{ibverbs.MTU256, ibverbs.MTU1024, ibverbs.MTU4096}
)

// Classes of sizes. Atomic operations have one of their own.
const (
	sizeNone = iota
	sizeOne
	sizeBelowMTU
	sizeMTU
	sizeAboveMTU
	size64K
	size1M
	sizeWord
)

func (r row) size() int {
	mtu := r.mtu.Bytes()
	return [...]int{0, 1, mtu - 1, mtu, mtu + 1, 64 << 10, 1 << 20, 8}[r.class]
}

func (r row) String() string {
	loss := "no loss"
	if r.loss {
		loss = "loss"
	}
	op := strings.TrimPrefix(r.op.String(), "IBV_WR_")
	return fmt.Sprintf("%s, %d bytes, MTU %d, %s, %s", op, r.size(), r.mtu.Bytes(), r.route(), loss)
}

// route is the IP version and who sends.
func (r row) route() string {
	ip, who := "IPv4", "kernel to softroce"
	if r.v6 {
		ip = "IPv6"
	}
	if r.softSends {
		who = "softroce to kernel"
	}
	return ip + ", " + who
}

func isAtomic(op ibverbs.Opcode) bool { return op == ibverbs.OpFetchAdd || op == ibverbs.OpCmpSwap }

// table is all rows of a transport with these operations.
func table(transport ibverbs.QPType, ops []ibverbs.Opcode) (rows []row) {
	bools := []bool{false, true}
	for _, loss := range bools {
		for _, op := range ops {
			classes := []int{sizeNone, sizeOne, sizeBelowMTU, sizeMTU, sizeAboveMTU, size64K, size1M}
			switch {
			case isAtomic(op):
				classes = []int{sizeWord}
			case transport == ibverbs.UD: // its path MTU is the port's; smaller ones are sizes of messages here
				classes = []int{sizeNone, sizeOne, sizeBelowMTU, sizeMTU}
			}
			for _, class := range classes {
				for _, mtu := range mtus {
					for _, v6 := range bools {
						for _, softSends := range bools {
							rows = append(rows, row{transport, op, class, mtu, v6, loss, softSends})
						}
					}
				}
			}
		}
	}
	return rows
}

func everything() bool { return os.Getenv("PURERDMA_INTEROP") == "all" }

// chosen is the rows that are to be run.
func chosen(g *rand.Rand, rows []row) []row {
	if everything() {
		return rows
	}
	return covering(g, rows)
}

// covering is a part of the table in which every three values of three columns
// that occur together in it occur again. Which part is left to chance.
func covering(g *rand.Rand, rows []row) (part []row) {
	order := g.Perm(len(rows))
	open := map[triple]bool{}
	for _, r := range rows {
		for _, v := range r.triples() {
			open[v] = true
		}
	}
	for len(open) > 0 {
		best, most := 0, 0
		for _, i := range order {
			n := 0
			for _, v := range rows[i].triples() {
				if open[v] {
					n++
				}
			}
			if n > most {
				best, most = i, n
			}
		}
		for _, v := range rows[best].triples() {
			delete(open, v)
		}
		part = append(part, rows[best])
	}
	slices.SortFunc(part, func(a, b row) int { return slices.Index(rows, a) - slices.Index(rows, b) })
	return part
}

// triple is three columns and their values, in the order of the columns.
type triple [6]uint8

func (r row) triples() (all [20]triple) {
	values := [...]uint8{uint8(r.op), uint8(r.class), uint8(r.mtu), number(r.v6), number(r.loss), number(r.softSends)}
	n := 0
	for i := range values {
		for j := range i {
			for k := range j {
				all[n] = triple{uint8(i), values[i], uint8(j), values[j], uint8(k), values[k]}
				n++
			}
		}
	}
	return all
}

func number(b bool) uint8 {
	if b {
		return 1
	}
	return 0
}
