package softroce

import (
	"github.com/purerdma/purerdma/ibverbs/driver"
	"github.com/purerdma/purerdma/ibverbs/softroce/internal/wire"
)

// transports is whose packets each type of queue pair takes.
var transports = map[driver.QPType]wire.Transport{driver.RC: wire.RC, driver.UC: wire.UC, driver.UD: wire.UD}

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
