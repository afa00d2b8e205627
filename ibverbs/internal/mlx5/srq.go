package mlx5

import (
	"errors"
	"math/bits"
	"sync/atomic"
	"syscall"

	"github.com/purerdma/purerdma/ibverbs/driver"
	"github.com/purerdma/purerdma/ibverbs/internal/uapi"
	"github.com/purerdma/purerdma/ibverbs/internal/uverbs"
	"github.com/purerdma/purerdma/internal/mlx5prm"
	"github.com/purerdma/purerdma/internal/mmio"
	"github.com/purerdma/purerdma/internal/offheap"
)

// SRQ is a shared receive queue. It implements driver.SRQ.
type SRQ struct {
	driver.BaseSRQ
	q   sharedQueue
	dev *Context
	h   uverbs.SRQHandle
	cap driver.SRQAttr // without Limit, which the device disarms
	mem offheap.Span
}

// sharedQueue is the ring of an SRQ. The device goes from entry to entry as each names
// the next, so an entry that is handed over must name one: the last of the chain is
// never handed over. Polls of several CQs give entries back, each by its flag; a post
// that has come to the end of the chain looks for them, in the order of the ring.
type sharedQueue struct {
	view
	shift   uint32
	sge     int
	ids     []uint64 // by entry; the length is a power of two
	state   []uint32 // by entry: inChain, posted, givenBack
	head    uint32   // entry that the next receive takes
	tail    uint32   // last of the chain
	counter uint32   // receives posted
	linked  uint32   // of given
	record  *uint32
	given   atomic.Uint32 // entries given back by polls
}

// States of an entry of a sharedQueue.
const (
	inChain = iota
	posted
	givenBack // and not in the chain
)

// maxShared is the most entries of an SRQ: their names have 16 bits.
const maxShared = 1 << 16

// sharedShape is the size of a queue for wr receives of sge entries, one entry more for
// the end of the chain.
func sharedShape(wr, sge int) (count int, shift uint32) {
	size := max(2*mlx5prm.DSUnit, (1+sge)*mlx5prm.DSUnit)
	return 1 << bits.Len(uint(wr)), uint32(bits.Len(uint(size - 1)))
}

// CreateSRQ implements driver.PD.
func (p *PD) CreateSRQ(c driver.SRQConfig) (driver.SRQ, error) {
	most := min(p.dev.maxSRQ, maxShared-1)
	if p.dev.attr.MaxSRQ == 0 || most < 1 {
		return nil, &driver.NotSupportedError{Feature: driver.FeatureSRQ, By: driver.LacksDevice}
	}
	if err := errors.Join(
		within("the number of receives", c.WR, 1, most),
		within("the number of scatter entries", c.SGE, 0, min(p.dev.attr.MaxSRQSGE, p.dev.maxRQDesc/mlx5prm.DSUnit-1)),
		within("the limit", c.Limit, 0, c.WR)); err != nil {
		return nil, err
	}
	s := &SRQ{dev: p.dev}
	if err := s.create(p, &c); err != nil {
		return nil, err
	}
	if c.Limit > 0 { // which the kernel does not look at when it makes a queue
		if err := s.SetLimit(c.Limit); err != nil {
			return nil, errors.Join(err, s.Close())
		}
	}
	return s, nil
}

func (s *SRQ) create(p *PD, c *driver.SRQConfig) (err error) {
	count, shift := sharedShape(c.WR, c.SGE)
	size := count << shift
	if s.mem, err = offheap.Map(size+recordRoom+count*12, offheap.Options{}); err != nil {
		return err
	}
	s.q.lay(s.mem, count, shift)
	s.cap = driver.SRQAttr{WR: count - 1, SGE: s.q.sge}
	req := uapi.MLX5CreateSRQ{BufAddr: s.mem.Addr(), DBAddr: s.mem.Addr() + uint64(size)}
	var resp uapi.MLX5CreateSRQResp
	made, err := s.dev.Dev.CreateSRQ(uverbs.SRQConfig{PD: p.h, WR: s.cap.WR, SGE: s.cap.SGE, Cookie: c.Cookie},
		uverbs.UHW{In: bytesOf(&req), Out: bytesOf(&resp)})
	if err != nil {
		return errors.Join(err, s.mem.Release())
	}
	s.h = made.Handle
	return nil
}

// lay puts the queue over mem, with all entries in the chain.
func (q *sharedQueue) lay(mem offheap.Span, count int, shift uint32) {
	size := count << shift
	q.view, q.shift, q.sge = viewOf(mem, 0, size), shift, (1<<shift-mlx5prm.DSUnit)/mlx5prm.DSUnit
	q.record = word(mem, size)
	q.ids, q.state = idTable(mem, size+recordRoom, count), flagTable(mem, size+recordRoom+count*8, count)
	q.tail = uint32(count - 1)
	for i := range uint32(count - 1) {
		q.next(i).Set(uint16(i + 1))
	}
}

// next is where an entry names the one behind it.
func (q *sharedQueue) next(i uint32) *mlx5prm.BE16 { return &q.srqNext(i << q.shift).NextWQEIndex }

// write puts wrs into the queue without telling the device and returns how many it
// took.
func (q *sharedQueue) write(wrs []driver.RecvWR) (int, error) {
	for i := range wrs {
		if q.head == q.tail && !q.extend() {
			return i, driver.ErrQueueFull
		}
		at := q.head << q.shift
		if err := q.scatter(at+mlx5prm.DSUnit, at+1<<q.shift, wrs[i].SGL, q.sge); err != nil {
			return i, err
		}
		q.ids[q.head] = wrs[i].ID
		mmio.StoreRelease32(&q.state[q.head], posted)
		q.head = uint32(q.next(q.head).Get())
		q.counter++
	}
	return len(wrs), nil
}

// extend adds an entry that was given back to the chain, and says whether there was
// one.
func (q *sharedQueue) extend() bool {
	if q.given.Load() == q.linked {
		return false
	}
	mask := uint32(len(q.state) - 1)
	i := (q.tail + 1) & mask
	for mmio.LoadAcquire32(&q.state[i]) != givenBack {
		i = (i + 1) & mask
	}
	q.state[i] = inChain
	q.linked++
	q.next(q.tail).Set(uint16(i))
	q.tail = i
	return true
}

// publish hands the entries to the device, which has no register for receives.
func (q *sharedQueue) publish() {
	mmio.StoreFence()
	mmio.Store32(q.record, mlx5prm.Word(q.counter&mlx5prm.CounterMask))
}

// complete gives back the entry that a completion names, and says whose it was. One that
// is not the device's is not given back.
func (q *sharedQueue) complete(wc *driver.WC, counter uint16) {
	i := uint32(counter) & uint32(len(q.ids)-1)
	wc.ID = q.ids[i]
	if atomic.CompareAndSwapUint32(&q.state[i], posted, givenBack) {
		q.given.Add(1)
	}
}

// PostsToMemory implements driver.MemoryPoster.
func (s *SRQ) PostsToMemory() {}

// PostRecv implements driver.SRQ. It makes no system call.
func (s *SRQ) PostRecv(wrs []driver.RecvWR) (int, error) {
	n, err := s.q.write(wrs)
	if n > 0 {
		s.q.publish()
	}
	return n, err
}

// Cap implements driver.SRQ.
func (s *SRQ) Cap() driver.SRQAttr { return s.cap }

// Query implements driver.SRQ.
func (s *SRQ) Query() (driver.SRQAttr, error) {
	a, err := s.dev.Dev.QuerySRQ(s.h)
	a.WR, a.SGE = s.cap.WR, s.cap.SGE
	return a, err
}

// SetLimit implements driver.SRQ.
func (s *SRQ) SetLimit(n int) error {
	if n < 0 || n > s.cap.WR {
		return within("the limit", n, 0, s.cap.WR)
	}
	return s.dev.Dev.SetSRQLimit(s.h, n, uverbs.UHW{})
}

// Resize implements driver.SRQ. mlx5_ib has none.
func (*SRQ) Resize(int) error {
	return &driver.NotSupportedError{Feature: driver.FeatureResizeSRQ, By: driver.LacksKernel, Err: syscall.EOPNOTSUPP}
}

// Close implements driver.SRQ.
func (s *SRQ) Close() error {
	err := s.dev.Dev.DestroySRQ(s.h)
	if !destroyed(err) {
		return err
	}
	return errors.Join(err, s.mem.Release())
}
