package mlx5model

import (
	"encoding/binary"
	"math/bits"
	"slices"
	"syscall"
	"time"

	"github.com/purerdma/purerdma/ibverbs/internal/uapi"
	"github.com/purerdma/purerdma/internal/mlx5prm"
)

// cq is a completion queue.
type cq struct {
	c       *context
	num     uint32
	user    uint64 // what events name it by
	channel eventFile
	async   eventFile
	buf, db uint64
	n       uint32 // entries
	stride  uint32
	pi, ci  uint32 // completions written, and read as far as is known
	used    int    // queue pairs that complete here
	overrun bool
	// The program sees to it that the ring does not overflow, whatever its record says.
	unchecked bool

	armed, solicited bool // an event is asked for, at solicited completions only
	lastSolicited    uint32
	posted           uint32 // events
	arm              uint32 // the record's word as it was last seen
	moderation
}

// Flags of a new CQ (enum ib_uverbs_ex_create_cq_flags). Completions have times always.
const (
	timestamps    = 1 << 0
	ignoreOverrun = 1 << 1
)

func (c *call) createCQ() error {
	b, err := c.in(uapi.AttrUHWIn)
	if err != nil {
		return err
	}
	entries := uint32(c.number(uapi.AttrCreateCQCQE))
	req := structOf[uapi.MLX5CreateCQ](b)
	n := uint32(1) << bits.Len32(entries)
	flags := c.number(uapi.AttrCreateCQFlags)
	switch {
	case c.number(uapi.AttrCreateCQCompVector) >= compVectors, entries == 0, entries > maxCQE, len(b) < len(bytesOf(&req)):
		return syscall.EINVAL
	case req.CQESize != 64 && req.CQESize != 128, req.Reserved0 != 0, req.Reserved1 != 0:
		return syscall.EINVAL
	case req.Flags&^(uapi.MLX5CreateCQ128BPad|uapi.MLX5CreateCQUARPageIndex) != 0, req.Flags&uapi.MLX5CreateCQUARPageIndex == 0:
		return syscall.EINVAL
	case req.CQECompEn != 0, flags&^(timestamps|ignoreOverrun) != 0:
		return syscall.EOPNOTSUPP
	case c.uars[uint32(req.UARPageIndex)] == nil:
		c.m.faultf("a CQ in a page of doorbells %d that is not the program's", req.UARPageIndex)
		return syscall.EINVAL
	case !c.mem.allows(req.BufAddr, uint64(n)*uint64(req.CQESize), true), !c.mem.allows(req.DBAddr, mlx5prm.RecordSize, true):
		return syscall.EFAULT
	}
	q := &cq{c: c.context, num: c.m.number(), user: c.number(uapi.AttrCreateCQUserHandle), buf: req.BufAddr, db: req.DBAddr, n: n, stride: req.CQESize, arm: unarmed,
		unchecked: flags&ignoreOverrun != 0}
	if g := c.attrs[uapi.AttrCreateCQCompChannel]; g != nil {
		if q.channel = c.files.named(uint32(g.Data)); q.channel == nil {
			return syscall.EBADF
		}
	}
	if q.async, err = c.asyncFile(uapi.AttrCreateCQEventFD); err != nil {
		return err
	}
	q.checkOwners()
	if err := c.mem.write(q.db+4, binary.BigEndian.AppendUint32(nil, unarmed)); err != nil {
		return err
	}
	c.cqs[q.num] = q
	resp := uapi.MLX5CreateCQResp{CQN: q.num}
	if err := c.outs(map[uint16][]byte{uapi.AttrCreateCQRespCQE: u32(n - 1), uapi.AttrUHWOut: bytesOf(&resp)}); err != nil {
		return err
	}
	return c.made(uapi.AttrCreateCQHandle, c.add(q))
}

// checkOwners says so if an entry of a new queue is not the adapter's: the program
// would take it for a completion.
func (q *cq) checkOwners() {
	b := make([]byte, q.n*q.stride)
	if q.c.mem.read(q.buf, b) != nil {
		return
	}
	for at := q.stride - 1; at < uint32(len(b)); at += q.stride {
		if mlx5prm.Valid(b[at], 0, q.n) {
			q.c.m.faultf("entry %d of the new CQ %#x is the program's already (%#x)", at/q.stride, q.num, b[at])
			return
		}
	}
}

// destroyCQ tells how many events the program has read; the others are gone.
func (c *call) destroyCQ() error {
	h := c.number(uapi.AttrDestroyCQHandle)
	q, err := object[*cq](c.context, h)
	if err != nil {
		return err
	}
	if q.used != 0 {
		return syscall.EBUSY
	}
	if q.channel != nil {
		for _, record := range q.channel.take() {
			if slices.Equal(record, u64(q.user)) {
				q.posted--
			} else if err := q.channel.post(record); err != nil {
				return err
			}
		}
	}
	delete(c.cqs, q.num)
	delete(c.m.held, q)
	delete(c.objects, uint32(h))
	resp := uapi.DestroyCQResp{CompEventsReported: q.posted, AsyncEventsReported: c.forget(q.async, q.user)}
	return c.out(uapi.AttrDestroyCQResp, bytesOf(&resp))
}

// createCompChannel answers with a file, whose number goes into the response.
func (c *call) createCompChannel([]byte) ([]byte, error) {
	f, err := c.files.events(c.attrs[uapi.AttrCoreOut].Data, 4)
	if err == nil {
		c.channels = append(c.channels, f)
	}
	return make([]byte, 4), err
}

// full says whether no entry is the adapter's. The program's index is read when the one
// that was read last leaves no room.
func (q *cq) full() bool {
	if q.overrun || q.unchecked || (q.pi-q.ci)&mlx5prm.CIMask < q.n {
		return q.overrun
	}
	var record [4]byte
	if q.c.mem.read(q.db, record[:]) == nil {
		q.ci = binary.BigEndian.Uint32(record[:])
	}
	return (q.pi-q.ci)&mlx5prm.CIMask >= q.n
}

// inline says whether n bytes have room in a completion.
func (q *cq) inline(n int) bool { return n > 0 && n <= int(q.stride)/2 }

var start = time.Now()

// add writes a completion. inline is data that goes with it, in the bytes in front of
// it or in its own first half (InlineScatter32). The owner's byte is written last.
func (q *cq) add(e *mlx5prm.CQE, opcode uint8, inline []byte) {
	if q.full() {
		if !q.overrun && !q.c.mem.ended() {
			q.overrun = true
			q.c.m.faultf("CQ %#x is overrun", q.num)
			q.c.event(q.async, eventCQErr, q.user)
		}
		return
	}
	if opcode != mlx5prm.CQEReqErr && opcode != mlx5prm.CQERespErr {
		e.Timestamp.Set(uint64(time.Since(start)))
	}
	switch {
	case len(inline) == 0:
	case q.stride == 128:
		e.OpOwn |= mlx5prm.InlineScatter64
		_ = q.c.mem.write(q.place()-64, inline)
	default:
		e.OpOwn |= mlx5prm.InlineScatter32
		copy(bytesOf(e), inline)
	}
	if q.write(e, opcode) != nil {
		return
	}
	q.come++
	failed := opcode == mlx5prm.CQEReqErr || opcode == mlx5prm.CQERespErr
	if failed || e.OpOwn&mlx5prm.SolicitedEvent != 0 {
		q.lastSolicited = q.pi
	}
	q.notify()
}

// write puts an entry where the adapter is in the ring.
func (q *cq) write(e *mlx5prm.CQE, opcode uint8) error {
	e.OpOwn |= opcode << 4
	if q.pi&q.n != 0 {
		e.OpOwn |= mlx5prm.OwnerMask
	}
	b := bytesOf(e)
	at := q.place()
	if err := q.c.mem.write(at, b[:63]); err != nil {
		return err
	}
	if err := q.c.mem.write(at+63, b[63:]); err != nil {
		return err
	}
	q.pi++
	return nil
}

// place is where the entry lies that the adapter writes next.
func (q *cq) place() uint64 { return q.buf + uint64((q.pi&(q.n-1))*q.stride+q.stride-64) }

// notify sends the event that was asked for, if the program has not seen what it is
// about.
func (q *cq) notify() {
	delete(q.c.m.held, q)
	if !q.armed {
		return
	}
	seen := q.arm & mlx5prm.CIMask
	last := q.pi
	if q.solicited {
		last = q.lastSolicited
	}
	if ahead := (last - seen) & mlx5prm.CIMask; ahead == 0 || ahead > q.n {
		q.since = time.Time{}
		return
	}
	if q.holds(time.Now()) {
		q.c.m.held[q] = struct{}{}
		return
	}
	q.told()
	q.armed = false
	if q.channel == nil {
		return
	}
	if err := q.channel.post(u64(q.user)); err != nil {
		q.c.m.logf("an event of CQ %#x is lost: %v", q.num, err)
		return
	}
	q.posted++
}

// unarmed is an arm word that no program stores: it lies in the record of a new queue.
const unarmed = 1<<32 - 1

// look takes the arm word from the record, if the program has stored another one.
func (q *cq) look() {
	var b [4]byte
	if q.c.mem.read(q.db+4, b[:]) != nil {
		return
	}
	if word := binary.BigEndian.Uint32(b[:]); word != q.arm {
		q.ask(word)
	}
}

// ask arms the queue with a word of the register or the record.
func (q *cq) ask(word uint32) {
	q.arm, q.armed, q.solicited = word, true, word&mlx5prm.ArmSolicited != 0
	q.notify()
}
