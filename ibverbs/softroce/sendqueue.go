package softroce

import (
	"sync/atomic"

	"github.com/purerdma/purerdma/ibverbs/driver"
	"github.com/purerdma/purerdma/ibverbs/softroce/internal/wire"
)

// sendQueue is a ring of requests. Positions count from the last reset and do not
// wrap: freed ≤ done ≤ next ≤ posted.
type sendQueue struct {
	blocks [][]request // of blockSize each; all is made on first use
	mask   uint64      // of the ring, whose size is a power of two
	sge    int
	inline int

	posted uint64
	next   uint64 // the first that is not sent in full
	done   uint64 // the first that has not completed
	freed  atomic.Uint64
}

// blockSize is how many entries of a queue are made at once, so that a deep queue
// costs memory only when it is used.
const blockSize = 16

// request is a copy of a SendWR and how far it has come. What all have comes first: of
// thousands of queue pairs each one is cold.
type request struct {
	id       uint64
	remote   driver.Remote
	op       driver.Opcode
	flags    driver.SendFlags
	failed   driver.Status // why it cannot be sent, Success if it can
	inline   bool
	executed bool // packets is 0, and it was done
	hasRest  bool
	imm      uint32
	length   uint32
	psn      wire.PSN // of its first packet
	packets  uint32   // 0 if it is done here
	data     []byte   // inline
	sgl      []driver.SGE
	requestRest
}

// requestRest is what few requests have; the others leave it alone.
type requestRest struct {
	compareAdd uint64
	swap       uint64
	bind       binding
	ah         *ah // of a datagram, and the queue pair that it goes to
	qpn, qkey  uint32
}

func newSendQueue(c driver.QPCap) sendQueue {
	n := ringSize(c.SendWR)
	return sendQueue{mask: uint64(n - 1), sge: c.SendSGE, inline: c.Inline}
}

// ringSize is the power of two that holds n.
func ringSize(n int) int {
	size := 1
	for size < n {
		size *= 2
	}
	return size
}

func (s *sendQueue) at(pos uint64) *request {
	i := pos & s.mask
	return &s.blocks[i/blockSize][i%blockSize]
}

func (s *sendQueue) full() bool { return s.posted-s.freed.Load() > s.mask }

// slot is the next request to fill in. Its SGL and data have room.
func (s *sendQueue) slot() *request {
	if s.blocks == nil {
		s.blocks = make([][]request, s.mask/blockSize+1)
	}
	i := s.posted & s.mask
	block := &s.blocks[i/blockSize]
	if *block == nil {
		*block = s.makeBlock()
	}
	return &(*block)[i%blockSize]
}

func (s *sendQueue) makeBlock() []request {
	n := min(blockSize, int(s.mask)+1)
	b := make([]request, n)
	sges := make([]driver.SGE, n*s.sge)
	data := make([]byte, n*s.inline)
	for i := range b {
		b[i].sgl = sges[i*s.sge : i*s.sge : (i+1)*s.sge]
		b[i].data = data[i*s.inline : i*s.inline : (i+1)*s.inline]
	}
	return b
}

func (s *sendQueue) reset() {
	s.posted, s.next, s.done = 0, 0, 0
	s.freed.Store(0)
}
