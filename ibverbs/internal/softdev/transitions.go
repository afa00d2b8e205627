package softdev

import (
	"fmt"
	"strings"
	"syscall"

	"github.com/purerdma/purerdma/ibverbs/driver"
)

// transition is which attributes a change of state must and may have beside
// QPStateMask (IBTA volume 1, table of modify queue pair).
type transition struct{ must, may driver.QPMask }

const (
	initAttrs = driver.QPPKeyIndex | driver.QPPort | driver.QPAccessFlags
	initUD    = driver.QPPKeyIndex | driver.QPPort | driver.QPQKey
	mayAtRTS  = driver.QPCurState | driver.QPAccessFlags | driver.QPMinRNRTimer
	mayAtSQD  = driver.QPPort | driver.QPAV | driver.QPTimeout | driver.QPRetryCnt | driver.QPRNRRetry |
		driver.QPMaxQPRdAtomic | driver.QPMaxDestRdAtomic | driver.QPPKeyIndex | driver.QPAccessFlags | driver.QPMinRNRTimer
	mayAtRTSUC = driver.QPCurState | driver.QPAccessFlags
	mayAtRTSUD = driver.QPCurState | driver.QPQKey
)

// transitions of each type of queue pair. Reset and Err can be entered from
// everywhere, SQE only by a request that fails.
var transitions = map[driver.QPType]map[[2]driver.QPState]transition{
	driver.RC: {
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
	},
	driver.UC: {
		{driver.StateReset, driver.StateInit}: {must: initAttrs},
		{driver.StateInit, driver.StateInit}:  {may: initAttrs},
		{driver.StateInit, driver.StateRTR}: {
			must: driver.QPAV | driver.QPPathMTU | driver.QPDestQPN | driver.QPRQPSN,
			may:  driver.QPAccessFlags | driver.QPPKeyIndex,
		},
		{driver.StateRTR, driver.StateRTS}: {must: driver.QPSQPSN, may: mayAtRTSUC},
		{driver.StateRTS, driver.StateRTS}: {may: mayAtRTSUC},
		{driver.StateRTS, driver.StateSQD}: {may: driver.QPEnSQDAsyncNotify},
		{driver.StateSQD, driver.StateRTS}: {may: mayAtRTSUC},
		{driver.StateSQD, driver.StateSQD}: {may: driver.QPAV | driver.QPAccessFlags | driver.QPPKeyIndex},
		{driver.StateSQE, driver.StateRTS}: {may: mayAtRTSUC},
	},
	driver.UD: {
		{driver.StateReset, driver.StateInit}: {must: initUD},
		{driver.StateInit, driver.StateInit}:  {may: initUD},
		{driver.StateInit, driver.StateRTR}:   {may: driver.QPPKeyIndex | driver.QPQKey},
		{driver.StateRTR, driver.StateRTS}:    {must: driver.QPSQPSN, may: mayAtRTSUD},
		{driver.StateRTS, driver.StateRTS}:    {may: mayAtRTSUD},
		{driver.StateRTS, driver.StateSQD}:    {may: driver.QPEnSQDAsyncNotify},
		{driver.StateSQD, driver.StateRTS}:    {may: mayAtRTSUD},
		{driver.StateSQD, driver.StateSQD}:    {may: driver.QPPKeyIndex | driver.QPQKey},
		{driver.StateSQE, driver.StateRTS}:    {may: mayAtRTSUD},
	},
}

// Required is the attributes that a change must have beside QPStateMask.
func Required(t driver.QPType, from, to driver.QPState) driver.QPMask {
	return transitions[t][[2]driver.QPState{from, to}].must
}

// CheckTransition says whether a queue pair in the state from can be modified so: EINVAL
// if not. The values of the attributes are the device's to check.
func CheckTransition(t driver.QPType, from driver.QPState, a *driver.QPAttr, mask driver.QPMask) error {
	if Misfit(t, from, a, mask) != "" {
		return syscall.EINVAL
	}
	return nil
}

// Misfit says what CheckTransition does not let pass, "" for nothing.
func Misfit(t driver.QPType, from driver.QPState, a *driver.QPAttr, mask driver.QPMask) string {
	to := from
	if mask&driver.QPStateMask != 0 {
		to = a.State
	}
	if mask&driver.QPCurState != 0 && a.CurState != from {
		return fmt.Sprintf("QPAttr.CurState is %v, and the QP is in %v", a.CurState, from)
	}
	c, ok := transitions[t][[2]driver.QPState{from, to}]
	if to == driver.StateReset || to == driver.StateErr {
		c, ok = transition{}, true
	}
	given := mask &^ driver.QPStateMask
	switch lacks, extra := c.must&^given, given&^(c.must|c.may); {
	case !ok:
		return fmt.Sprintf("an %v QP does not go from %v to %v, but to %s", t, from, to, next(t, from))
	case lacks != 0:
		return fmt.Sprintf("the change from %v to %v lacks %v", from, to, lacks)
	case extra != 0:
		return fmt.Sprintf("the change from %v to %v does not take %v", from, to, extra)
	}
	return ""
}

// next is the states that a queue pair in the state from can be modified to.
func next(t driver.QPType, from driver.QPState) string {
	var names []string
	for to := driver.StateReset; to <= driver.StateErr; to++ {
		_, ok := transitions[t][[2]driver.QPState{from, to}]
		if ok || to == driver.StateReset || to == driver.StateErr {
			names = append(names, to.String())
		}
	}
	return strings.Join(names, " or ")
}
