package qp

import (
	"fmt"
	"syscall"

	"github.com/purerdma/purerdma/ibverbs"
)

// QP is an RC queue pair of a connection, in INIT after New and in RTS after
// Connect. Close it when done. Like the queue pair within it may be used from
// any goroutine; only one may Connect.
type QP struct {
	*ibverbs.QP
	params Params
	choice Choice
	pd     *ibverbs.PD
	port   ibverbs.PortAttr // when it was made
	path   Path
}

var errNoPD = fmt.Errorf("the PD is nil: %w", syscall.EINVAL)

// Params is what it was made with.
func (q *QP) Params() Params { return q.params }

// Choice is the local GID and why it was taken.
func (q *QP) Choice() Choice { return q.choice }

// Info is what one end of a connection tells the other. None of it is trusted:
// Connect checks each field.
type Info struct {
	GID       ibverbs.GID
	QPN       uint32 // 24 bits
	PSN       uint32 // 24 bits, the first that this end sends
	LID       uint16 // InfiniBand only
	Port      uint8  // of the end that tells; for people
	LinkLayer ibverbs.LinkLayer
	MTU       ibverbs.MTU // the largest that this end can use
}

// Path is the way of a connection, for people who look at its packets.
type Path struct {
	Device        string
	Port          int
	GIDIndex      int
	Local, Remote ibverbs.GID
	LocalQPN      uint32
	RemoteQPN     uint32
	FlowLabel     uint32
	// UDPSourcePort is what Linux derives for RoCE v2 (UDPSourcePort), 0 for
	// others.
	UDPSourcePort uint16
	TrafficClass  uint8
	ServiceLevel  uint8
	MTU           ibverbs.MTU
}

// String is one line.
func (p Path) String() string {
	s := fmt.Sprintf("%s/%d QP %#x %v (GID index %d) to QP %#x %v, MTU %v", p.Device, p.Port, p.LocalQPN, p.Local.Addr(), p.GIDIndex,
		p.RemoteQPN, p.Remote.Addr(), p.MTU)
	if p.FlowLabel != 0 {
		s += fmt.Sprintf(", flow label %#x", p.FlowLabel)
	}
	if p.UDPSourcePort != 0 {
		s += fmt.Sprintf(", UDP source port %d", p.UDPSourcePort)
	}
	return s
}

// New makes a queue pair with the CQs send and recv, which may be one, and
// brings it to INIT. The port must be active and have a usable GID.
func New(pd *ibverbs.PD, send, recv *ibverbs.CQ, opts ...Option) (*QP, error) {
	q := &QP{pd: pd, params: Defaults()}
	for _, opt := range opts {
		if opt != nil {
			opt(&q.params)
		}
	}
	const op = "make QP"
	if pd == nil {
		return nil, &ibverbs.Error{Op: op, Err: errNoPD}
	}
	p := &q.params
	if err := p.Check(); err != nil {
		return nil, q.fail(op, err, "")
	}
	if err := q.lookAtPort(); err != nil {
		return nil, err
	}
	var err error
	if q.QP, err = pd.CreateQP(ibverbs.QPConfig{Type: ibverbs.RC, SendCQ: send, RecvCQ: recv, SRQ: p.SRQ, Cap: ibverbs.QPCap{
		SendWR: p.SendDepth, RecvWR: p.RecvDepth, SendSGE: p.SGEs, RecvSGE: p.SGEs, Inline: p.Inline}}); err != nil {
		return nil, err
	}
	if err := q.Modify(&ibverbs.QPAttr{State: ibverbs.StateInit, PKeyIndex: uint16(p.PKeyIndex), Port: p.Port, Access: p.Access},
		ibverbs.QPStateMask|ibverbs.QPPKeyIndex|ibverbs.QPPort|ibverbs.QPAccessFlags); err != nil {
		_ = q.Close() // the first error is the one to tell
		return nil, err
	}
	return q, nil
}

// lookAtPort takes the port's state and its GID.
func (q *QP) lookAtPort() error {
	const op = "make QP"
	var err error
	if q.port, err = q.pd.Port(q.params.Port); err != nil {
		return err
	}
	if q.port.State != ibverbs.PortActive {
		return q.fail(op, fmt.Errorf("port is %v: %w", q.port.State, syscall.ENETDOWN), "bring the link up: ip link, ibstat")
	}
	if !q.port.ActiveMTU.Valid() {
		return q.fail(op, fmt.Errorf("port tells an MTU of %v: %w", q.port.ActiveMTU, syscall.EINVAL), "")
	}
	if q.port.LinkLayer == ibverbs.LinkInfiniBand && q.port.LID == 0 {
		return q.fail(op, fmt.Errorf("port has no LID: %w", syscall.ENETDOWN), "is a subnet manager running?")
	}
	table, err := q.pd.GIDs(q.params.Port)
	if err != nil {
		return err
	}
	if q.choice, err = q.params.ChooseGID(q.port.LinkLayer, table); err != nil {
		if e, ok := err.(*ibverbs.Error); ok {
			e.Device = q.device()
		}
		return err
	}
	return nil
}

// Info is what the peer needs to connect to q.
func (q *QP) Info() Info {
	return Info{GID: q.choice.GID, QPN: q.Num(), PSN: q.params.SendPSN, LID: q.port.LID, Port: uint8(q.params.Port),
		LinkLayer: q.port.LinkLayer, MTU: q.mtu()}
}

// mtu is the largest path MTU that this end can use.
func (q *QP) mtu() ibverbs.MTU {
	if m := q.params.MTU; m != 0 {
		return min(m, q.port.ActiveMTU)
	}
	return q.port.ActiveMTU
}

// Path is the way of the connection, complete after Connect.
func (q *QP) Path() Path { return q.path }

func (q *QP) device() string { return fmt.Sprintf("%s/%d", q.pd.Info().Name, q.params.Port) }

func (q *QP) fail(op string, err error, hint string) *ibverbs.Error {
	e := &ibverbs.Error{Op: op, Device: q.device(), Err: err, Hint: hint}
	if q.QP != nil {
		e.Object = fmt.Sprintf("QP %#x", q.Num())
	}
	return e
}
