package ibverbs

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"syscall"

	"github.com/purerdma/purerdma/ibverbs/driver"
)

// QPConfig is what CreateQP makes. The zero Type is RC. Cap is what is asked
// for; QP.Cap says what was made, never less. With an SRQ the QP has no receive
// queue of its own: Cap.RecvWR and Cap.RecvSGE count for nothing, and PostRecv
// refuses.
type QPConfig struct {
	Type           QPType
	SendCQ, RecvCQ *CQ
	SRQ            *SRQ
	Cap            QPCap
	SignalAll      bool // every request is signaled
}

// QP is a queue pair.
type QP struct {
	send, recv queue
	state      atomic.Uint32
	d          driver.QP
	num        uint32
	cap        QPCap
	typ        QPType
	dev        *device
	n          *node
	cqs        [2]*CQ
	srq        *SRQ       // nil for a receive queue of its own
	ctl        sync.Mutex // one control call at a time
	closed     bool       // under ctl
	peer       atomic.Pointer[peerEnd]
	fatal      atomic.Bool // an event or failure moved it to Err; only Reset mends that
}

// queue is one of the two rings of a QP.
type queue struct {
	postLock
	fault error  // why it takes no more: closed, overrun, device gone
	full  *Error // built once: a full queue is an everyday answer
}

// CreateQP makes a queue pair in Reset. Package qp brings it to RTS.
func (p *PD) CreateQP(c QPConfig) (*QP, error) {
	const op = "create QP"
	v := p.dev
	if c.Type == 0 {
		c.Type = RC
	}
	if c.SendCQ == nil || c.RecvCQ == nil {
		return nil, &Error{Op: op, Device: v.info.Name, Err: errNoCQ}
	}
	if c.SendCQ.dev != v || c.RecvCQ.dev != v {
		return nil, &Error{Op: op, Device: v.info.Name, Err: errOtherCQ, Hint: "make the CQs from the device of the PD"}
	}
	for _, cq := range [...]*CQ{c.SendCQ, c.RecvCQ} {
		if err := cq.failure(); err != nil {
			return nil, &Error{Op: op, Device: v.info.Name, Object: cq.n.name, Err: err}
		}
	}
	q := &QP{dev: v, typ: c.Type, cqs: [2]*CQ{c.SendCQ, c.RecvCQ}, srq: c.SRQ}
	parents := []*node{p.n, c.SendCQ.n, c.RecvCQ.n}
	config := driver.QPConfig{Type: c.Type, SendCQ: c.SendCQ.d, RecvCQ: c.RecvCQ.d, Cap: c.Cap, SignalAll: c.SignalAll}
	if c.SRQ != nil {
		if c.SRQ.dev != v {
			return nil, &Error{Op: op, Device: v.info.Name, Object: c.SRQ.n.label(), Err: errOtherSRQ}
		}
		config.SRQ, parents = c.SRQ.d, append(parents, c.SRQ.n)
		config.Cap.RecvWR, config.Cap.RecvSGE = 0, 0
	}
	err := v.create(op, rankQP, c.Type.String()+" QP", parents, func(n *node) (string, func() error, error) {
		v.qpNumbers.Lock()
		defer v.qpNumbers.Unlock()
		config.Cookie = n.id
		d, err := p.d.CreateQP(config)
		if err != nil {
			return "", nil, v.explainQP(err, c.Type, config.Cap)
		}
		q.d, q.n, q.num, q.cap = d, n, d.Num(), d.Cap()
		q.send.suit(d)
		q.recv.suit(d)
		name := fmt.Sprintf("QP %#x", q.num)
		q.send.full = &Error{Op: "post send", Device: v.info.Name, Object: name, Err: driver.ErrQueueFull}
		q.recv.full = &Error{Op: "post receive", Device: v.info.Name, Object: name, Err: driver.ErrQueueFull}
		if c.SRQ != nil {
			q.recv.fault = &Error{Op: "post receive", Device: v.info.Name, Object: name, Err: errHasSRQ, Hint: "post to the " + c.SRQ.n.name}
		}
		q.enter()
		return name, q.destroy, nil
	}, q)
	if err != nil {
		return nil, err
	}
	for _, cq := range q.cqs {
		if cq.overran() { // after CreateQP had looked
			q.fail(driver.ErrCQOverrun)
		}
	}
	return q, nil
}

// enter makes the QP known to its CQs, by its number.
func (q *QP) enter() {
	for _, c := range q.cqs {
		c.mu.Lock()
		c.qps[q.num] = q
		c.mu.Unlock()
	}
}

// PostSend puts wrs into the send queue and rings the doorbell once. With
// n < len(wrs), wrs[:n] are posted, wrs[n] was refused with err, and the rest
// was not looked at. It waits for no peer and allocates nothing, also for
// literals with literal SGLs. Before RTS it refuses and touches nothing; in Err
// requests are accepted and flushed.
func (q *QP) PostSend(wrs ...SendWR) (n int, err error) {
	q.send.Lock()
	if q.send.fault != nil || q.state.Load() < uint32(StateRTS) {
		err = q.refused("post send", &q.send, driver.ErrBadState)
	} else if n, err = q.d.PostSend(hide(wrs)); err != nil {
		err = q.refused("post send", &q.send, explainSend(err, wrs[n:]))
	}
	q.send.Unlock()
	return n, err
}

// PostRecv is the same for the receive queue, from Init on.
func (q *QP) PostRecv(wrs ...RecvWR) (n int, err error) {
	q.recv.Lock()
	if q.recv.fault != nil || q.state.Load() < uint32(StateInit) {
		err = q.refused("post receive", &q.recv, driver.ErrBadState)
	} else if n, err = q.d.PostRecv(hide(wrs)); err != nil {
		err = q.refused("post receive", &q.recv, err)
	}
	q.recv.Unlock()
	return n, err
}

// refused is the error of a post, called under the lock of w.
func (q *QP) refused(op string, w *queue, err error) error {
	switch {
	case w.fault != nil:
		return w.fault
	case err == driver.ErrQueueFull:
		return w.full
	case err == driver.ErrBadState:
		err = fmt.Errorf("QP is in %v: %w", q.State(), driver.ErrBadState)
	}
	e := wrap(op, q.dev.info.Name, q.n.name, err).(*Error)
	e.Peer = q.Peer()
	if e.Hint == "" {
		e.Hint = q.limit(w, err)
	}
	return e
}

// limit is what the QP takes, where a request asked for more.
func (q *QP) limit(w *queue, err error) string {
	sges := q.cap.SendSGE
	if w == &q.recv {
		sges = q.cap.RecvSGE
	}
	switch {
	case errors.Is(err, driver.ErrInlineTooBig):
		return fmt.Sprintf("it takes %d bytes; QPCap.Inline asks for more", q.cap.Inline)
	case errors.Is(err, driver.ErrTooManySGE):
		return fmt.Sprintf("it takes %d; QPCap.SendSGE and RecvSGE ask for more", sges)
	}
	return ""
}

// Num is the QP number, 24 bits.
func (q *QP) Num() uint32 { return q.num }

// Cap is the sizes that were made.
func (q *QP) Cap() QPCap { return q.cap }

// Type is the transport.
func (q *QP) Type() QPType { return q.typ }

// SRQ is where its receives come from, nil for a receive queue of its own.
func (q *QP) SRQ() *SRQ { return q.srq }

// State is the state last set or told by an event. Of devices that send no event
// when a request fails, Soft-RoCE for one, only Query learns it.
func (q *QP) State() QPState { return QPState(q.state.Load()) }

// Peer names the QP at the other end for errors: its number and GID or LID, ""
// before RTR.
func (q *QP) Peer() string {
	if p := q.peer.Load(); p != nil {
		return p.name
	}
	return ""
}

// hintAbout is what the address of the peer may have to do with a request that
// failed, "" for nothing.
func (q *QP) hintAbout(s Status) string {
	if p := q.peer.Load(); p != nil && p.loopback && s == RetryExcErr {
		return "the peer's GID is a loopback address, which leads to this machine alone; if the peer is on another, both need devices at " +
			"addresses of their network (PURERDMA_SOFTROCE_ADDRS for softroce)"
	}
	return ""
}

// Query asks the device for the attributes as they are now.
func (q *QP) Query() (a QPAttr, err error) {
	q.ctl.Lock()
	defer q.ctl.Unlock()
	if q.closed {
		return a, wrap("query QP", q.dev.info.Name, q.n.name, driver.ErrClosed)
	}
	a, err = q.d.Query()
	if err == nil {
		q.entered(a.State)
	}
	return a, wrap("query QP", q.dev.info.Name, q.n.name, err)
}

// Modify sets the attributes of a that mask names. The change to RTR may sit in
// the kernel for about a second while it resolves the peer's address. A change
// to Reset empties both queues and takes the QP's completions out of its CQs.
func (q *QP) Modify(a *QPAttr, mask QPMask) error {
	q.ctl.Lock()
	defer q.ctl.Unlock()
	op := "modify QP"
	if a == nil {
		return wrap(op, q.dev.info.Name, q.n.name, fmt.Errorf("the attributes are nil: %w", syscall.EINVAL))
	}
	if mask&QPStateMask != 0 {
		op = "modify QP to " + a.State.String()
	}
	if q.closed {
		return wrap(op, q.dev.info.Name, q.n.name, driver.ErrClosed)
	}
	reset := mask&QPStateMask != 0 && a.State == StateReset
	if reset {
		q.send.Lock()
		defer q.send.Unlock()
		q.recv.Lock()
		defer q.recv.Unlock()
	}
	if err := q.d.Modify(a, mask); err != nil {
		e := wrap(op, q.dev.info.Name, q.n.name, q.explainModify(err, a, mask)).(*Error)
		if mask&QPAV != 0 && e.Peer == "" {
			e.Peer = peerName(a)
		}
		return e
	}
	if reset {
		q.purge(false)
	}
	if mask&QPAV != 0 {
		q.peer.Store(&peerEnd{peerName(a), a.AH.IsGlobal && a.AH.DGID.Addr().IsLoopback()})
	}
	if mask&QPStateMask != 0 {
		q.entered(a.State)
	}
	return nil
}

// entered notes the state that the QP is in now. That it has failed meanwhile is
// not forgotten but by a Reset.
func (q *QP) entered(s QPState) {
	if s == StateReset {
		q.fatal.Store(false)
	}
	q.state.Store(uint32(s))
	if q.fatal.Load() {
		q.state.Store(uint32(StateErr))
	}
}

// broke notes that the QP has left for Err without a Modify.
func (q *QP) broke() {
	q.fatal.Store(true)
	q.state.Store(uint32(StateErr))
}

// peerEnd is who is at the other end.
type peerEnd struct {
	name     string
	loopback bool
}

func peerName(a *QPAttr) string {
	if a.AH.IsGlobal {
		return fmt.Sprintf("QP %#x at %v", a.DestQPN, a.AH.DGID.Addr())
	}
	return fmt.Sprintf("QP %#x at LID %d", a.DestQPN, a.AH.DLID)
}

// purge takes the QP's completions out of its CQs, and with leave the QP too.
func (q *QP) purge(leave bool) {
	a, b := q.cqs[0], q.cqs[1]
	if a.n.id > b.n.id {
		a, b = b, a
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if b != a {
		b.mu.Lock()
		defer b.mu.Unlock()
	}
	q.d.Purge()
	if leave {
		delete(a.qps, q.num)
		delete(b.qps, q.num)
	}
}

// fail makes both queues refuse with err and moves the QP to Err, so that what
// is posted comes back flushed.
func (q *QP) fail(err error) {
	q.ctl.Lock()
	defer q.ctl.Unlock()
	if q.closed {
		return
	}
	if !errors.Is(err, driver.ErrDeviceGone) {
		_ = q.d.Modify(&QPAttr{State: StateErr}, QPStateMask) // a QP that cannot be moved is reported by err all the same
	}
	q.broke()
	for i, w := range [...]*queue{&q.send, &q.recv} {
		w.Lock()
		q.refuse(w, posts[i], err)
		w.Unlock()
	}
}

var posts = [...]string{"post send", "post receive"}

// refuse makes a queue, whose lock is held, refuse with err from now on.
func (q *QP) refuse(w *queue, op string, err error) {
	if w.fault == nil {
		e := wrap(op, q.dev.info.Name, q.n.name, err).(*Error)
		e.Peer = q.Peer()
		w.fault = e
	}
}

// brokeBy is as much of fail as can be done without waiting: a queue on which
// somebody is posting is left to fail.
func (q *QP) brokeBy(err error) {
	q.broke()
	for i, w := range [...]*queue{&q.send, &q.recv} {
		if w.TryLock() {
			q.refuse(w, posts[i], err)
			w.Unlock()
		}
	}
}

// AttachMulticast makes a UD QP receive what is sent to the group g; lid is the
// group's on InfiniBand and does not count on Ethernet.
func (q *QP) AttachMulticast(g GID, lid uint16) error {
	return q.multicast("attach QP to multicast group", g, lid, true)
}

// DetachMulticast ends what AttachMulticast began.
func (q *QP) DetachMulticast(g GID, lid uint16) error {
	return q.multicast("detach QP from multicast group", g, lid, false)
}

func (q *QP) multicast(op string, g GID, lid uint16, attach bool) error {
	q.ctl.Lock()
	defer q.ctl.Unlock()
	err := error(driver.ErrClosed)
	if !q.closed {
		err = q.d.Multicast(g, lid, attach)
	}
	if err = wrap(op, q.dev.info.Name, q.n.name, err); err != nil {
		err.(*Error).Peer = g.String()
	}
	return err
}

func (q *QP) destroy() error {
	q.ctl.Lock()
	defer q.ctl.Unlock()
	q.send.Lock()
	defer q.send.Unlock()
	q.recv.Lock()
	defer q.recv.Unlock()
	q.dev.qpNumbers.Lock()
	defer q.dev.qpNumbers.Unlock()
	err := q.d.Close()
	if errors.Is(err, syscall.EBUSY) {
		return err
	}
	q.purge(true)
	q.closed = true
	closed := wrap("use", q.dev.info.Name, q.n.name, driver.ErrClosed)
	q.send.fault, q.recv.fault = closed, closed
	return err
}

// Close destroys the QP in any state. What was posted and not polled has no
// completion any more.
func (q *QP) Close() error { return q.dev.closeNode("close QP", q.n) }
