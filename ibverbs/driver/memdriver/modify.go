package memdriver

import (
	"syscall"

	"github.com/purerdma/purerdma/ibverbs/driver"
)

// transition is which attributes a change of state of an RC QP must and may
// have beside QPStateMask (IBTA volume 1, table of modify queue pair).
type transition struct{ must, may driver.QPMask }

const (
	mayAtRTS = driver.QPCurState | driver.QPAccessFlags | driver.QPMinRNRTimer
	mayAtSQD = driver.QPPort | driver.QPAV | driver.QPTimeout | driver.QPRetryCnt | driver.QPRNRRetry |
		driver.QPMaxQPRdAtomic | driver.QPMaxDestRdAtomic | driver.QPPKeyIndex | driver.QPAccessFlags | driver.QPMinRNRTimer
	initAttrs = driver.QPPKeyIndex | driver.QPPort | driver.QPAccessFlags
)

var transitions = map[[2]driver.QPState]transition{
	{driver.StateReset, driver.StateInit}: {must: initAttrs},
	{driver.StateInit, driver.StateInit}:  {may: initAttrs},
	{driver.StateInit, driver.StateRTR}: {
		must: driver.QPAV | driver.QPPathMTU | driver.QPDestQPN | driver.QPRQPSN | driver.QPMaxDestRdAtomic | driver.QPMinRNRTimer,
		may:  driver.QPAccessFlags | driver.QPPKeyIndex,
	},
	{driver.StateRTR, driver.StateRTS}: {
		must: driver.QPSQPSN | driver.QPTimeout | driver.QPRetryCnt | driver.QPRNRRetry | driver.QPMaxQPRdAtomic,
		may:  mayAtRTS,
	},
	{driver.StateRTS, driver.StateRTS}: {may: mayAtRTS},
	{driver.StateRTS, driver.StateSQD}: {may: driver.QPEnSQDAsyncNotify},
	{driver.StateSQD, driver.StateRTS}: {may: mayAtRTS},
	{driver.StateSQD, driver.StateSQD}: {may: mayAtSQD},
}

// checkModify changes nothing.
func (q *qp) checkModify(a *driver.QPAttr, mask driver.QPMask) error {
	from, to := q.attr.State, q.attr.State
	if mask&driver.QPStateMask != 0 {
		to = a.State
	}
	if mask&driver.QPCurState != 0 && a.CurState != from {
		return syscall.EINVAL
	}
	t, ok := transitions[[2]driver.QPState{from, to}]
	if to == driver.StateReset || to == driver.StateErr {
		t, ok = transition{}, true
	}
	given := mask &^ driver.QPStateMask
	if !ok || given&t.must != t.must || given&^(t.must|t.may) != 0 {
		return syscall.EINVAL
	}
	return q.checkValues(a, mask)
}

func (q *qp) checkValues(a *driver.QPAttr, mask driver.QPMask) error {
	portNumber := q.attr.Port
	if mask&driver.QPPort != 0 {
		portNumber = a.Port
	}
	p, err := q.dev().port(portNumber)
	if err != nil {
		if mask&^(driver.QPStateMask|driver.QPCurState) == 0 {
			return nil
		}
		return err
	}
	limit := &q.dev().attr
	for _, f := range [...]struct {
		field driver.QPMask
		bad   bool
	}{
		{driver.QPPKeyIndex, int(a.PKeyIndex) >= p.attr.PKeyLen},
		{driver.QPAccessFlags, a.Access&^knownAccess != 0},
		{driver.QPPathMTU, !a.PathMTU.Valid() || a.PathMTU > p.attr.ActiveMTU},
		{driver.QPDestQPN, a.DestQPN > 0xffffff},
		{driver.QPRQPSN, a.RQPSN > 0xffffff},
		{driver.QPSQPSN, a.SQPSN > 0xffffff},
		{driver.QPTimeout, a.Timeout > 31},
		{driver.QPRetryCnt, a.RetryCnt > 7},
		{driver.QPRNRRetry, a.RNRRetry > 7},
		{driver.QPMinRNRTimer, a.MinRNRTimer > 31},
		{driver.QPMaxDestRdAtomic, int(a.MaxDestRdAtomic) > limit.MaxQPRdAtomic},
		{driver.QPMaxQPRdAtomic, int(a.MaxRdAtomic) > limit.MaxQPInitRdAtom},
	} {
		if mask&f.field != 0 && f.bad {
			return syscall.EINVAL
		}
	}
	if mask&driver.QPAV != 0 {
		return checkAddress(&a.AH, p, portNumber)
	}
	return nil
}

func checkAddress(a *driver.AHAttr, p *port, portNumber int) error {
	if a.Port != portNumber || a.SL > 15 || a.FlowLabel > 0xfffff {
		return syscall.EINVAL
	}
	if !a.IsGlobal {
		if p.attr.LinkLayer == driver.LinkEthernet {
			return syscall.EINVAL
		}
		return nil
	}
	if _, ok := p.gid(a.SGIDIndex); !ok {
		return syscall.ENODATA
	}
	return nil
}

func (q *qp) set(a *driver.QPAttr, mask driver.QPMask) {
	set(&q.attr.State, a.State, mask&driver.QPStateMask)
	set(&q.attr.Access, a.Access, mask&driver.QPAccessFlags)
	set(&q.attr.PKeyIndex, a.PKeyIndex, mask&driver.QPPKeyIndex)
	set(&q.attr.Port, a.Port, mask&driver.QPPort)
	set(&q.attr.AH, a.AH, mask&driver.QPAV)
	set(&q.attr.PathMTU, a.PathMTU, mask&driver.QPPathMTU)
	set(&q.attr.Timeout, a.Timeout, mask&driver.QPTimeout)
	set(&q.attr.RetryCnt, a.RetryCnt, mask&driver.QPRetryCnt)
	set(&q.attr.RNRRetry, a.RNRRetry, mask&driver.QPRNRRetry)
	set(&q.attr.RQPSN, a.RQPSN, mask&driver.QPRQPSN)
	set(&q.attr.SQPSN, a.SQPSN, mask&driver.QPSQPSN)
	set(&q.attr.MaxRdAtomic, a.MaxRdAtomic, mask&driver.QPMaxQPRdAtomic)
	set(&q.attr.MaxDestRdAtomic, a.MaxDestRdAtomic, mask&driver.QPMaxDestRdAtomic)
	set(&q.attr.MinRNRTimer, a.MinRNRTimer, mask&driver.QPMinRNRTimer)
	set(&q.attr.DestQPN, a.DestQPN, mask&driver.QPDestQPN)
}

func set[T any](to *T, v T, given driver.QPMask) {
	if given != 0 {
		*to = v
	}
}
