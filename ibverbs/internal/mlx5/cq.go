package mlx5

import (
	"errors"
	"math/bits"
	"sync/atomic"

	"github.com/purerdma/purerdma/ibverbs/driver"
	"github.com/purerdma/purerdma/ibverbs/internal/uapi"
	"github.com/purerdma/purerdma/ibverbs/internal/uverbs"
	"github.com/purerdma/purerdma/internal/mlx5prm"
	"github.com/purerdma/purerdma/internal/mmio"
	"github.com/purerdma/purerdma/internal/offheap"
)

// cqeSize is the bytes of struct mlx5_cqe64, and the least of an entry of a CQ.
const cqeSize = 64

// maxCQE is the most entries of a queue (log_cq_size of the PRM has 5 bits, of
// which libmlx5 uses up to 24).
const maxCQE = 1 << 24

// recordRoom is what a doorbell record takes of the memory behind a queue: a cache
// line of its own.
const recordRoom = 64

// CQ is a completion queue. It implements driver.CQ.
type CQ struct {
	driver.BaseCQ
	completions
	overrun atomic.Bool // by NextEvent
	dev     *Context
	h       uverbs.CQHandle
	mem     offheap.Span // the ring
	records offheap.Span // the doorbell record, which stays where it is when the ring is resized
	channel *CompChannel
	cookie  uint64
	// events is how many events the channel delivered. Its two low bits number the
	// next arm, by which the device knows an arm that it has answered already.
	events atomic.Uint32
	num    uint32
}

// completions is the ring of a CQ.
type completions struct {
	view
	n      uint32 // entries, a power of two
	stride uint32 // bytes of an entry; the completion is at its end
	ci     uint32 // entries consumed
	record *uint32
	arm    *uint32
}

// newCompletions lays a queue over mem, whose entries belong to the device at
// first.
func newCompletions(mem, records offheap.Span, n, stride uint32) completions {
	q := completions{view: viewOf(mem, 0, int(n*stride)), n: n, stride: stride, record: word(records, 0), arm: word(records, 4)}
	for i := range n {
		q.cqe(q.where(i)).OpOwn = mlx5prm.Initial
	}
	return q
}

// where is the offset of the completion number i.
func (q *completions) where(i uint32) uint32 { return i*q.stride + q.stride - cqeSize }

// ready says whether the program may read the completion number i. The fence keeps
// what is read of it behind the load of its owner.
func (q *completions) ready(i uint32) bool {
	if !mlx5prm.Valid(mlx5prm.OpOwn(mmio.LoadAcquire32(q.last(q.where(i)))), i, q.n) {
		return false
	}
	mmio.LoadFence()
	return true
}

// consumed gives the entries before ci back to the device: what was read of them
// comes first. The fence orders loads with the stores after it, too.
func (q *completions) consumed() {
	mmio.LoadFence()
	mmio.Store32(q.record, mlx5prm.Word(q.ci&mlx5prm.CIMask))
}

// entries is the size of a ring for depth completions: one more than asked for, as the
// kernel counts, and a power of two.
func (c *Context) entries(depth int) (uint32, error) {
	return 1 << bits.Len(uint(max(depth, 0))), within("the depth", depth, 1, min(c.attr.MaxCQE, maxCQE-1))
}

// CreateCQ implements driver.Context.
func (c *Context) CreateCQ(config driver.CQConfig) (driver.CQ, error) {
	n, err := c.entries(config.Depth)
	if err != nil {
		return nil, err
	}
	if err := within("the completion vector", config.Vector, 0, max(c.attr.CompVectors, 1)-1); err != nil {
		return nil, err
	}
	u := uverbs.CQConfig{Vector: config.Vector, Cookie: config.Cookie}
	cq := &CQ{dev: c, cookie: config.Cookie}
	if config.Channel != nil {
		ch, ok := config.Channel.(*CompChannel)
		if !ok || ch.dev != c {
			return nil, errOtherChannel
		}
		cq.channel, u.Channel = ch, ch.CompChannel
	}
	u.Depth = int(n) - 1
	if cq.mem, err = offheap.Map(int(n*c.cqeSize), offheap.Options{}); err != nil {
		return nil, err
	}
	if cq.records, err = offheap.Map(recordRoom, offheap.Options{}); err != nil {
		return nil, errors.Join(err, cq.mem.Release())
	}
	cq.completions = newCompletions(cq.mem, cq.records, n, c.cqeSize)
	req := uapi.MLX5CreateCQ{BufAddr: cq.mem.Addr(), DBAddr: cq.records.Addr(), CQESize: c.cqeSize,
		Flags: uapi.MLX5CreateCQUARPageIndex, UARPageIndex: uint16(c.armUAR.PageID)}
	var resp uapi.MLX5CreateCQResp
	if cq.h, _, err = c.Dev.CreateCQ(u, uverbs.UHW{In: bytesOf(&req), Out: bytesOf(&resp)}); err != nil {
		return nil, errors.Join(err, cq.mem.Release(), cq.records.Release())
	}
	cq.num = resp.CQN
	c.mu.Lock()
	c.cqs[cq] = struct{}{}
	c.mu.Unlock()
	return cq, nil
}

// Poll implements driver.CQ. What is in an overrun queue is delivered before
// ErrCQOverrun.
func (c *CQ) Poll(wcs []driver.WC) (int, error) {
	n, before := 0, c.ci
	for n < len(wcs) && c.ready(c.ci) {
		if c.dev.take(&wcs[n], &c.view, c.where(c.ci)) {
			n++
		}
		c.ci++
	}
	if c.ci != before {
		c.consumed()
	}
	if n == 0 && c.overrun.Load() {
		return 0, driver.ErrCQOverrun
	}
	return n, nil
}

// Arm implements driver.CQ.
func (c *CQ) Arm(solicitedOnly bool) error {
	var flags uint32
	if solicitedOnly {
		flags = mlx5prm.ArmSolicited
	}
	w := mlx5prm.ArmWord(c.events.Load(), flags, c.ci)
	mmio.Store32(c.arm, mlx5prm.Word(w))
	mmio.StoreFence()
	mmio.Store64(c.dev.armReg, mlx5prm.ArmRegister(w, c.num))
	mmio.StoreFence()
	return nil
}

// Depth implements driver.CQ.
func (c *CQ) Depth() int { return int(c.n) - 1 }

// Moderate implements driver.CQ.
func (c *CQ) Moderate(count, periodMicros int) error {
	return c.dev.Dev.ModerateCQ(c.h, count, periodMicros)
}

// Close implements driver.CQ.
func (c *CQ) Close() error {
	err := c.dev.Dev.DestroyCQ(c.h)
	if !destroyed(err) {
		return err
	}
	c.dev.mu.Lock()
	delete(c.dev.cqs, c)
	c.dev.mu.Unlock()
	return errors.Join(err, c.mem.Release(), c.records.Release())
}

// drop takes the completions of a QP out: those that stay move towards the end that
// the device adds to. An entry keeps its owner bit, whatever moves into it.
func (q *completions) drop(mine func(*mlx5prm.CQE) bool) {
	end := q.ci
	for end-q.ci < q.n && q.ready(end) {
		end++
	}
	to := end
	for from := end; from != q.ci; {
		from--
		e := q.cqe(q.where(from))
		if mine(e) {
			continue
		}
		if to--; to != from {
			d := q.cqe(q.where(to))
			owner := d.OpOwn & mlx5prm.OwnerMask
			*d = *e
			d.OpOwn = d.OpOwn&^mlx5prm.OwnerMask | owner
		}
	}
	if to != q.ci {
		q.ci = to
		mmio.StoreFence() // what moved is there before the device may write
		q.consumed()
	}
}
