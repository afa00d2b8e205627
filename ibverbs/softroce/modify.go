package softroce

import (
	"syscall"

	"github.com/purerdma/purerdma/ibverbs/driver"
	"github.com/purerdma/purerdma/ibverbs/internal/softdev"
	"github.com/purerdma/purerdma/ibverbs/softroce/internal/wire"
)

func (q *qp) Modify(a *driver.QPAttr, mask driver.QPMask) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	if err := q.checkModify(a, mask); err != nil {
		return err
	}
	q.set(a, mask)
	if mask&driver.QPStateMask == 0 {
		return nil
	}
	from := q.attr.State
	if a.State == driver.StateReset || a.State == driver.StateErr {
		q.leave()
	}
	q.setState(a.State)
	switch a.State {
	case driver.StateReset:
		q.clear()
	case driver.StateRTR:
		q.mtu = q.attr.PathMTU.Bytes()
		if q.typ == driver.UD {
			q.mtu = q.e.maxMTU().Bytes()
		}
		q.startResponder()
	case driver.StateRTS:
		if from == driver.StateRTR {
			q.startRequester()
		}
		q.transmit()
	case driver.StateSQD:
		q.attr.EnSQDNotify = mask&driver.QPEnSQDAsyncNotify != 0 && a.EnSQDNotify
		q.drained()
	case driver.StateErr:
		q.flush()
	}
	return nil
}

func (q *qp) setState(s driver.QPState) {
	q.attr.State = s
	q.inError.Store(s == driver.StateErr)
}

// drained raises the event that a send queue that was to be drained is.
func (q *qp) drained() {
	if q.attr.State == driver.StateSQD && q.attr.EnSQDNotify && q.req.una == q.req.sent {
		q.attr.EnSQDNotify = false
		q.raise(driver.EventSQDrained)
	}
}

// checkModify changes nothing.
func (q *qp) checkModify(a *driver.QPAttr, mask driver.QPMask) error {
	if err := softdev.CheckTransition(q.typ, q.attr.State, a, mask); err != nil {
		return err
	}
	return q.checkValues(a, mask)
}

func (q *qp) checkValues(a *driver.QPAttr, mask driver.QPMask) error {
	for _, f := range [...]struct {
		field driver.QPMask
		bad   bool
	}{
		{driver.QPPort, a.Port != 1},
		{driver.QPPKeyIndex, a.PKeyIndex != 0},
		{driver.QPAccessFlags, a.Access&^knownAccess != 0},
		{driver.QPPathMTU, !a.PathMTU.Valid() || a.PathMTU > q.e.maxMTU()},
		{driver.QPDestQPN, a.DestQPN > wire.PSNMask},
		{driver.QPRQPSN, a.RQPSN > wire.PSNMask},
		{driver.QPSQPSN, a.SQPSN > wire.PSNMask},
		{driver.QPTimeout, a.Timeout > 31},
		{driver.QPRetryCnt, a.RetryCnt > 7},
		{driver.QPRNRRetry, a.RNRRetry > 7},
		{driver.QPMinRNRTimer, a.MinRNRTimer > 31},
		{driver.QPMaxDestRdAtomic, int(a.MaxDestRdAtomic) > maxRdAtomic},
		{driver.QPMaxQPRdAtomic, int(a.MaxRdAtomic) > maxRdAtomic},
	} {
		if mask&f.field != 0 && f.bad {
			return syscall.EINVAL
		}
	}
	if mask&driver.QPAV != 0 {
		return q.e.checkAddress(&a.AH)
	}
	return nil
}

func (q *qp) set(a *driver.QPAttr, mask driver.QPMask) {
	set(&q.attr.Access, a.Access, mask&driver.QPAccessFlags)
	set(&q.attr.PKeyIndex, a.PKeyIndex, mask&driver.QPPKeyIndex)
	set(&q.attr.Port, a.Port, mask&driver.QPPort)
	set(&q.attr.QKey, a.QKey, mask&driver.QPQKey)
	set(&q.attr.PathMTU, a.PathMTU, mask&driver.QPPathMTU)
	set(&q.attr.Timeout, a.Timeout, mask&driver.QPTimeout)
	set(&q.attr.RetryCnt, a.RetryCnt, mask&driver.QPRetryCnt)
	set(&q.attr.RNRRetry, a.RNRRetry, mask&driver.QPRNRRetry)
	set(&q.attr.MaxRdAtomic, a.MaxRdAtomic, mask&driver.QPMaxQPRdAtomic)
	set(&q.attr.MaxDestRdAtomic, a.MaxDestRdAtomic, mask&driver.QPMaxDestRdAtomic)
	set(&q.attr.MinRNRTimer, a.MinRNRTimer, mask&driver.QPMinRNRTimer)
	set(&q.attr.DestQPN, a.DestQPN, mask&driver.QPDestQPN)
	set(&q.req.psn, wire.PSN(a.SQPSN), mask&driver.QPSQPSN)
	set(&q.resp.psn, wire.PSN(a.RQPSN), mask&driver.QPRQPSN)
	if mask&driver.QPAV != 0 {
		q.attr.AH = a.AH
		q.setPeer(a.AH.DGID.Addr())
	}
}

func set[T any](to *T, v T, given driver.QPMask) {
	if given != 0 {
		*to = v
	}
}
