package memdriver

import (
	"slices"

	"github.com/purerdma/purerdma/ibverbs/driver"
)

// Op is a call of the seam, for Device.FailNext.
type Op string

// Calls that can be made to fail. OpClose is any Close; the object stays open.
const (
	OpOpen              Op = "Open"
	OpQueryDevice       Op = "QueryDevice"
	OpQueryPort         Op = "QueryPort"
	OpGIDs              Op = "GIDs"
	OpAllocPD           Op = "AllocPD"
	OpCreateCompChannel Op = "CreateCompChannel"
	OpCreateCQ          Op = "CreateCQ"
	OpCreateQP          Op = "CreateQP"
	OpModifyQP          Op = "ModifyQP"
	OpQueryQP           Op = "QueryQP"
	OpRegMR             Op = "RegMR"
	OpArm               Op = "Arm"
	OpPoll              Op = "Poll" // of a queue that is empty
	OpPostSend          Op = "PostSend"
	OpPostRecv          Op = "PostRecv"
	OpClose             Op = "Close"
)

// faults is what a test has switched on. The zero value is a healthy device.
type faults struct {
	errs            map[Op][]error
	statuses        []vendorStatus
	gone            bool
	silent          bool
	held            bool
	holdCompletions bool
	late            []lateCompletion
	visible         int // bytes of a write that are seen at once, 0 for all
	tails           []tail
}

type vendorStatus struct {
	status driver.Status
	vendor uint32
}

type lateCompletion struct {
	cq        *cq
	e         cqe
	solicited bool
}

// tail is the end of a write of q that is not visible yet.
type tail struct {
	q      *qp
	peer   *qp
	remote driver.Remote
	data   []byte
}

// next is the error that the call is to fail with, if any.
func (f *faults) next(op Op) error {
	if len(f.errs[op]) == 0 {
		return nil
	}
	err := f.errs[op][0]
	f.errs[op] = f.errs[op][1:]
	return err
}

func (f *faults) nextStatus() (driver.Status, uint32, bool) {
	if len(f.statuses) == 0 {
		return 0, 0, false
	}
	s := f.statuses[0]
	f.statuses = f.statuses[1:]
	return s.status, s.vendor, true
}

// tail keeps back the end of a plain write of n bytes, and says how many bytes
// to place now.
func (f *faults) tail(q *qp, e *sendEntry, local [][]byte, n int) int {
	if f.visible == 0 || n <= f.visible || e.op != driver.OpWrite {
		return n
	}
	f.tails = append(f.tails, tail{
		q: q, peer: q.peer(), remote: driver.Remote{Addr: e.remote.Addr + uint64(f.visible), RKey: e.remote.RKey},
		data: slices.Concat(local...)[f.visible:],
	})
	return f.visible
}

// placeTails makes the writes of q visible; of all QPs if q is nil.
func (f *faults) placeTails(q *qp) {
	if len(f.tails) == 0 {
		return
	}
	for _, t := range f.tails {
		if q != nil && t.q != q {
			continue
		}
		// The memory may have been deregistered since.
		m := t.peer.dev().rkeys[t.remote.RKey]
		if b, ok := m.bytes(t.peer.pd, t.remote.Addr, uint32(len(t.data)), driver.RemoteWrite); ok {
			place(b, t.data)
		}
	}
	if q == nil {
		f.tails = nil
		return
	}
	f.dropTails(q)
}

func (f *faults) dropTails(q *qp) {
	f.tails = slices.DeleteFunc(f.tails, func(t tail) bool { return t.q == q })
}

// FailNext makes the next calls of op on this device fail, each with one of
// errs in turn; nil lets one pass.
func (dev *Device) FailNext(op Op, errs ...error) {
	dev.d.mu.Lock()
	defer dev.d.mu.Unlock()
	if dev.faults.errs == nil {
		dev.faults.errs = map[Op][]error{}
	}
	dev.faults.errs[op] = append(dev.faults.errs[op], errs...)
}

// FailNextRequest makes the next send request of this device that runs end with
// status s and this vendor syndrome, before it has any effect at the peer.
func (dev *Device) FailNextRequest(s driver.Status, vendor uint32) {
	dev.d.mu.Lock()
	defer dev.d.mu.Unlock()
	dev.faults.statuses = append(dev.faults.statuses, vendorStatus{s, vendor})
}

// Silence makes the device lose all packets, in and out, without an event, like
// a cable that is cut behind the switch; false mends it.
func (dev *Device) Silence(on bool) {
	dev.d.mu.Lock()
	defer dev.d.mu.Unlock()
	dev.faults.silent = on
	dev.d.kick()
}

// Hold stops the execution of send requests of this device; they are accepted
// and stay in their queues.
func (dev *Device) Hold() {
	dev.d.mu.Lock()
	defer dev.d.mu.Unlock()
	dev.faults.held = true
}

// Step executes up to n requests of a held device, in the order of posting over
// all its QPs, and says how many it did. It passes over a QP whose first request
// has to wait for the peer.
func (dev *Device) Step(n int) int {
	dev.d.mu.Lock()
	defer dev.d.mu.Unlock()
	waits := map[*qp]bool{}
	for done := range n {
		q := dev.oldest(waits)
		for q != nil && !q.step() {
			waits[q] = true
			q = dev.oldest(waits)
		}
		if q == nil {
			return done
		}
	}
	return n
}

// oldest is the QP with the request that was posted first, without those that
// wait.
func (dev *Device) oldest(waits map[*qp]bool) *qp {
	var first *qp
	var order uint64
	for _, q := range dev.qps {
		if q.attr.State != driver.StateRTS || q.sqDone == q.sqPosted || waits[q] {
			continue
		}
		if o := q.sq[q.sqDone%uint64(len(q.sq))].order; first == nil || o < order {
			first, order = q, o
		}
	}
	return first
}

// Resume ends Hold and executes what waits, in the order of posting.
func (dev *Device) Resume() {
	for dev.Step(1<<10) == 1<<10 {
	}
	dev.d.mu.Lock()
	defer dev.d.mu.Unlock()
	dev.faults.held = false
	for _, q := range dev.byNumber() {
		q.run()
	}
}

// HoldCompletions keeps the completions of this device back: data moves, its
// CQs stay as they are.
func (dev *Device) HoldCompletions() {
	dev.d.mu.Lock()
	defer dev.d.mu.Unlock()
	dev.faults.holdCompletions = true
}

// ReleaseCompletions ends HoldCompletions and delivers them in order.
func (dev *Device) ReleaseCompletions() {
	dev.d.mu.Lock()
	defer dev.d.mu.Unlock()
	late := dev.faults.late
	dev.faults.late, dev.faults.holdCompletions = nil, false
	for _, l := range late {
		l.cq.put(l.e, l.solicited)
	}
}

// DelayTail makes only the first visible bytes of each RDMA_WRITE of this device
// (without immediate data) seen at the peer; the rest is seen when the QP
// executes its next request, or at ReleaseTails. Completions are not delayed. It
// is how a reader finds out that of several entries written at once the first
// may come before the others. 0 ends it.
func (dev *Device) DelayTail(visible int) {
	dev.d.mu.Lock()
	defer dev.d.mu.Unlock()
	dev.faults.visible = visible
}

// ReleaseTails makes all that DelayTail kept back visible.
func (dev *Device) ReleaseTails() {
	dev.d.mu.Lock()
	defer dev.d.mu.Unlock()
	dev.faults.placeTails(nil)
}
