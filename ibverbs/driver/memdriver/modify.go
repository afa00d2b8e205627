package memdriver

import (
	"syscall"

	"github.com/purerdma/purerdma/ibverbs/driver"
	"github.com/purerdma/purerdma/ibverbs/internal/softdev"
)

// checkModify changes nothing.
func (q *qp) checkModify(a *driver.QPAttr, mask driver.QPMask) error {
	if err := softdev.CheckTransition(driver.RC, q.attr.State, a, mask); err != nil {
		return err
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
