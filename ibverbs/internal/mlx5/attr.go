package mlx5

import (
	"syscall"

	"github.com/purerdma/purerdma/ibverbs/driver"
)

// max24 is the highest packet number or QP number.
const max24 = 1<<24 - 1

// notModified is fields that this library does not change.
const notModified = driver.QPAltPath | driver.QPPathMigState | driver.QPCapMask | driver.QPRateLimit

// granted is the rights that a QP grants its peer, or may be told beside them.
const granted = driver.LocalWrite | driver.RemoteWrite | driver.RemoteRead | driver.RemoteAtomic | driver.MWBind

// checkAttr refuses what does not fit the device, and says what would: the kernel has one
// errno for all of it, or cuts the number off.
func (q *QP) checkAttr(a *driver.QPAttr, mask driver.QPMask) error {
	if no := mask & notModified; no != 0 {
		return hint(syscall.EINVAL, "alternate paths, sizes and rate limits of a queue pair are not changed: leave %#x out of the mask", uint32(no))
	}
	for _, f := range [...]struct {
		bit driver.QPMask
		field
	}{
		{driver.QPStateMask, field{"the state", int(a.State), int(driver.StateErr)}},
		{driver.QPCurState, field{"the current state", int(a.CurState), int(driver.StateErr)}},
		{driver.QPRQPSN, field{"the receive PSN", int(a.RQPSN), max24}},
		{driver.QPSQPSN, field{"the send PSN", int(a.SQPSN), max24}},
		{driver.QPDestQPN, field{"the peer's QP number", int(a.DestQPN), max24}},
		{driver.QPTimeout, field{"the timeout code", int(a.Timeout), 31}},
		{driver.QPRetryCnt, field{"the retry count", int(a.RetryCnt), 7}},
		{driver.QPRNRRetry, field{"the RNR retry count", int(a.RNRRetry), 7}},
		{driver.QPMinRNRTimer, field{"the RNR timer code", int(a.MinRNRTimer), 31}},
		{driver.QPMaxQPRdAtomic, field{"the number of reads and atomics to start", int(a.MaxRdAtomic), q.dev.attr.MaxQPInitRdAtom}},
		{driver.QPMaxDestRdAtomic, field{"the number of reads and atomics to take", int(a.MaxDestRdAtomic), q.dev.attr.MaxQPRdAtomic}},
	} {
		if mask&f.bit != 0 && f.asked > f.most {
			return within(f.what, f.asked, 0, f.most)
		}
	}
	if bad := a.Access &^ granted; mask&driver.QPAccessFlags != 0 && bad != 0 {
		return hint(syscall.EINVAL, "%#x are no rights that a queue pair grants", uint32(bad))
	}
	return q.checkPath(a, mask)
}

// checkPath holds what is said of ports against those that are meant.
func (q *QP) checkPath(a *driver.QPAttr, mask driver.QPMask) error {
	home := q.port
	if mask&driver.QPPort != 0 {
		home = a.Port
	}
	if mask&(driver.QPPort|driver.QPPKeyIndex) != 0 {
		p, err := q.dev.port(home)
		if err != nil {
			return err
		}
		if mask&driver.QPPKeyIndex != 0 {
			if err := within("the index of the P_Key", int(a.PKeyIndex), 0, p.pkeys-1); err != nil {
				return err
			}
		}
	}
	if mask&driver.QPAV != 0 {
		p, err := q.dev.port(a.AH.Port)
		if err != nil {
			return err
		}
		if err := p.takesAV(&a.AH); err != nil {
			return err
		}
		home = a.AH.Port
	}
	if mask&driver.QPPathMTU != 0 {
		return q.checkMTU(a.PathMTU, home)
	}
	return nil
}

// checkMTU holds the path MTU against that of the port: the device takes a longer one,
// and what it then sends does not arrive.
func (q *QP) checkMTU(m driver.MTU, port int) error {
	if !m.Valid() {
		return hint(syscall.EINVAL, "the path MTU is none of the five of the IBTA")
	}
	p, err := q.dev.QueryPort(port)
	if err != nil {
		return err
	}
	if p.ActiveMTU.Valid() && m > p.ActiveMTU {
		return hint(errPathMTU, "the path MTU is %v, port %d has %v: use the smaller of both ends", m, port, p.ActiveMTU)
	}
	return nil
}

// explain adds to an errno of a change what it means.
func (q *QP) explain(err error, a *driver.QPAttr, mask driver.QPMask) error {
	if err == syscall.EPERM && mask&driver.QPQKey != 0 && a.QKey>>31 != 0 {
		return hint(err, "a Q_Key with the highest bit set takes CAP_NET_RAW")
	}
	if mask&driver.QPAV != 0 {
		return explainAV(err, &a.AH)
	}
	return err
}
