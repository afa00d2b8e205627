package rxe

import (
	"sync/atomic"

	"github.com/purerdma/purerdma/ibverbs/driver"
	"github.com/purerdma/purerdma/ibverbs/internal/uapi"
)

// datagrams is what a QP of type UD has beside the queues.
type datagrams struct {
	qkey atomic.Uint32 // that the QP has
	mtu  atomic.Uint32 // of the port when it went to RTS, in bytes
	// groups is those it is attached to, with what ends the membership of the net
	// devices.
	groups map[group]func() error
}

// port is the only one that a device has (RXE_NUM_PORT).
const port = 1

// prepare notes what datagrams need of a change that is about to be made.
func (q *QP) prepare(a *driver.QPAttr, mask driver.QPMask) error {
	if mask&driver.QPStateMask != 0 && a.State == driver.StateRTS {
		p, err := q.dev.Dev.QueryPort(port)
		if err != nil {
			return err
		}
		q.ud.mtu.Store(uint32(p.ActiveMTU.Bytes()))
	}
	if mask&driver.QPQKey != 0 {
		q.ud.qkey.Store(a.QKey)
	}
	return nil
}

// address fills the part of an element that says where a datagram goes. A Q_Key
// with the highest bit set stands for the QP's own (IBTA 10.2.5), which the kernel
// leaves to who posts.
func (q *QP) address(e *uapi.RxeSendWQE, to *driver.Destination) error {
	ah, ok := to.AH.(*AH)
	if !ok {
		return errNoAH
	}
	if ah.pd != q.pd {
		return errOtherAH
	}
	num := ah.num.Load()
	if num == 0 {
		return errClosedAH
	}
	qkey := to.QKey
	if qkey>>31 != 0 {
		qkey = q.ud.qkey.Load()
	}
	d := datagram(e)
	d.RemoteQPN, d.RemoteQKey, d.AHNum = to.QPN, qkey, num
	return nil
}
