package ibverbs

import (
	"fmt"
	"math"
	"os"
	"syscall"

	"github.com/purerdma/purerdma/ibverbs/driver"
	"github.com/purerdma/purerdma/ibverbs/internal/softdev"
)

// What devices refuse with EINVAL and no more gets the field that they mean, by what they tell of themselves. Drivers that say
// more know better.

// extent is what was asked for, by its field, and what can be.
type extent struct {
	field              string
	asked, least, most int
}

// explain names the first field that is outside.
func explain(err error, fields ...extent) error {
	if err != syscall.EINVAL {
		return err
	}
	for _, f := range fields {
		if f.asked < f.least || f.asked > f.most {
			return &Error{Err: fmt.Errorf("%s is %d: %w", f.field, f.asked, err), Hint: fmt.Sprintf("%d to %d are possible", f.least, f.most)}
		}
	}
	return err
}

// because gives EINVAL a reason, if there is one.
func because(err error, why string) error {
	if why == "" {
		return err
	}
	return fmt.Errorf("%s: %w", why, err)
}

// limits is what the device takes; a device that does not tell is taken for one that takes all.
func (v *device) limits() driver.DeviceAttr {
	if a, err := v.d.QueryDevice(); err == nil {
		return a
	}
	const all = math.MaxInt32
	return driver.DeviceAttr{MaxQPWR: all, MaxSGE: all, MaxCQE: all, CompVectors: all, MaxSRQWR: all, MaxSRQSGE: all,
		MaxQPRdAtomic: all, MaxQPInitRdAtom: all}
}

func (v *device) explainCQ(err error, depth, vector int) error {
	if err != syscall.EINVAL {
		return err
	}
	a := v.limits()
	return explain(err, extent{"the depth", depth, 1, a.MaxCQE}, extent{"the completion vector", vector, 0, a.CompVectors - 1})
}

func (v *device) explainSRQ(err error, c SRQConfig) error {
	if err != syscall.EINVAL {
		return err
	}
	a := v.limits()
	return explain(err, extent{"SRQConfig.WR", c.WR, 1, a.MaxSRQWR}, extent{"SRQConfig.SGE", c.SGE, 0, a.MaxSRQSGE},
		extent{"SRQConfig.Limit", c.Limit, 0, c.WR})
}

func (v *device) explainQP(err error, t QPType, c QPCap) error {
	if err != syscall.EINVAL {
		return err
	}
	if t != RC && t != UC && t != UD {
		return because(err, fmt.Sprintf("QPConfig.Type is %v", t))
	}
	a := v.limits()
	err = explain(err, extent{"QPCap.SendWR", c.SendWR, 0, a.MaxQPWR}, extent{"QPCap.RecvWR", c.RecvWR, 0, a.MaxQPWR},
		extent{"QPCap.SendSGE", c.SendSGE, 0, a.MaxSGE}, extent{"QPCap.RecvSGE", c.RecvSGE, 0, a.MaxSGE})
	if err == syscall.EINVAL && c.Inline != 0 {
		return &Error{Err: because(err, fmt.Sprintf("QPCap.Inline is %d", c.Inline)), Hint: "devices do not tell how many bytes they take; 64 are few"}
	}
	return err
}

// explainModify is called under the lock of control calls.
func (q *QP) explainModify(err error, a *QPAttr, mask QPMask) error {
	if err != syscall.EINVAL {
		return err
	}
	from := q.State()
	if now, err := q.d.Query(); err == nil {
		from = now.State
	}
	if why := softdev.Misfit(q.typ, from, a, mask); why != "" {
		return because(err, why)
	}
	if a.Access&^rights != 0 && mask&QPAccessFlags != 0 {
		return because(err, noRights("QPAttr.Access", a.Access))
	}
	const bits24 = 1<<24 - 1
	most, port := q.dev.limits(), q.portOf(a, mask)
	for _, f := range [...]struct {
		bit QPMask
		extent
	}{
		{QPPort, extent{"QPAttr.Port", a.Port, 1, q.dev.info.Ports}},
		{QPPKeyIndex, extent{"QPAttr.PKeyIndex", int(a.PKeyIndex), 0, port.PKeyLen - 1}},
		{QPPathMTU, extent{"QPAttr.PathMTU", int(a.PathMTU), int(MTU256), int(port.ActiveMTU)}},
		{QPDestQPN, extent{"QPAttr.DestQPN", int(a.DestQPN), 0, bits24}},
		{QPRQPSN, extent{"QPAttr.RQPSN", int(a.RQPSN), 0, bits24}},
		{QPSQPSN, extent{"QPAttr.SQPSN", int(a.SQPSN), 0, bits24}},
		{QPTimeout, extent{"QPAttr.Timeout", int(a.Timeout), 0, 31}},
		{QPRetryCnt, extent{"QPAttr.RetryCnt", int(a.RetryCnt), 0, 7}},
		{QPRNRRetry, extent{"QPAttr.RNRRetry", int(a.RNRRetry), 0, 7}},
		{QPMinRNRTimer, extent{"QPAttr.MinRNRTimer", int(a.MinRNRTimer), 0, 31}},
		{QPMaxQPRdAtomic, extent{"QPAttr.MaxRdAtomic", int(a.MaxRdAtomic), 0, most.MaxQPInitRdAtom}},
		{QPMaxDestRdAtomic, extent{"QPAttr.MaxDestRdAtomic", int(a.MaxDestRdAtomic), 0, most.MaxQPRdAtomic}},
	} {
		if mask&f.bit != 0 {
			if e := explain(err, f.extent); e != err {
				return e
			}
		}
	}
	return err
}

// portOf is the port that a change is about, or one that takes all.
func (q *QP) portOf(a *QPAttr, mask QPMask) PortAttr {
	port := a.AH.Port
	if mask&QPPort != 0 {
		port = a.Port
	}
	if port >= 1 && port <= q.dev.info.Ports {
		if p, err := q.dev.d.QueryPort(port); err == nil && p.ActiveMTU.Valid() {
			return p
		}
	}
	return PortAttr{ActiveMTU: MTU4096, PKeyLen: math.MaxUint16 + 1}
}

// explainSend says what of the first of wrs, which was refused, no device takes.
func explainSend(err error, wrs []SendWR) error {
	if len(wrs) == 0 {
		return err
	}
	op := wrs[0].Op
	switch err {
	case driver.ErrBadOpcode:
		return &Error{Err: err, Hint: fmt.Sprintf("SendWR.Op is %v", op)}
	case syscall.EINVAL:
		return because(err, misfit(&wrs[0]))
	}
	return err
}

func misfit(wr *SendWR) string {
	local := wr.Op == OpBindMW || wr.Op == OpLocalInv
	fetches := wr.Op == OpRead || wr.Op == OpCmpSwap || wr.Op == OpFetchAdd
	unknown := wr.Flags &^ (Fence | Signaled | Solicited)
	switch {
	case unknown != 0:
		return fmt.Sprintf("SendWR.Flags has %v, which is no flag", unknown)
	case wr.Inline != nil && fetches:
		return fmt.Sprintf("SendWR.Inline is set, and %v needs registered memory for what comes back", wr.Op)
	case (wr.Inline != nil || wr.SGL != nil) && local:
		return fmt.Sprintf("SendWR.SGL or Inline is set, and %v has no data", wr.Op)
	case wr.Inline != nil && wr.SGL != nil:
		return "SendWR.Inline and SGL are both set"
	case wr.Op == OpBindMW && wr.Bind == nil:
		return "SendWR.Bind is nil"
	case wr.Op == OpBindMW:
		return "SendWR.Bind is not what MW.Bind makes of a window and an MR of this device, with remote rights, and not the last of that window"
	case wr.UD.QPN >= 1<<24:
		return fmt.Sprintf("SendWR.UD.QPN is %#x and has more than 24 bits", wr.UD.QPN)
	}
	return ""
}

// rights is all of enum ibv_access_flags that there is a name for.
const rights = LocalWrite | RemoteWrite | RemoteRead | RemoteAtomic | MWBind | ZeroBased | OnDemand | HugeTLB | RelaxedOrdering

func noRights(field string, a Access) string {
	return fmt.Sprintf("%s has %v, which is no right", field, a&^rights)
}

// explainAccess is for registrations, of which every device takes the common rights.
func explainAccess(err error, a Access) error {
	rare := a &^ (LocalWrite | RemoteWrite | RemoteRead | RemoteAtomic)
	switch {
	case err != syscall.EINVAL:
		return err
	case a&^rights != 0:
		return because(err, noRights("the access", a))
	case rare != 0:
		return &Error{Err: err, Hint: fmt.Sprintf("the access has %v, which not every device takes", rare)}
	}
	return err
}

func explainMR(err error, s driver.Span, iova uint64, a Access) error {
	switch {
	case err != syscall.EINVAL:
		return err
	case (iova^s.Addr())%uint64(os.Getpagesize()) != 0:
		return because(err, fmt.Sprintf("the iova %#x and the memory at %#x differ in their offset within a page", iova, s.Addr()))
	case iova+uint64(s.Len()) < iova:
		return because(err, fmt.Sprintf("the iova %#x is so high that the memory does not end below 2^64", iova))
	}
	return explainAccess(err, a)
}
