package ibverbs

import "github.com/purerdma/purerdma/ibverbs/driver"

// What users need of the seam below, under the same names.
type (
	SendWR            = driver.SendWR
	RecvWR            = driver.RecvWR
	SGE               = driver.SGE
	Remote            = driver.Remote
	WC                = driver.WC
	Opcode            = driver.Opcode
	SendFlags         = driver.SendFlags
	WCOpcode          = driver.WCOpcode
	WCFlags           = driver.WCFlags
	Status            = driver.Status
	Access            = driver.Access
	Memory            = driver.Memory
	GID               = driver.GID
	GIDType           = driver.GIDType
	GIDEntry          = driver.GIDEntry
	MTU               = driver.MTU
	LinkLayer         = driver.LinkLayer
	PortState         = driver.PortState
	PortAttr          = driver.PortAttr
	DeviceInfo        = driver.DeviceInfo
	DeviceAttr        = driver.DeviceAttr
	AHAttr            = driver.AHAttr
	QPType            = driver.QPType
	QPState           = driver.QPState
	QPCap             = driver.QPCap
	QPAttr            = driver.QPAttr
	QPMask            = driver.QPMask
	DMABuf            = driver.DMABuf
	EventType         = driver.EventType
	Feature           = driver.Feature
	Error             = driver.Error
	CompletionError   = driver.CompletionError
	NotSupportedError = driver.NotSupportedError
)

// Operations, enum ibv_wr_opcode.
const (
	OpWrite        = driver.OpWrite
	OpWriteWithImm = driver.OpWriteWithImm
	OpSend         = driver.OpSend
	OpSendWithImm  = driver.OpSendWithImm
	OpRead         = driver.OpRead
	OpCmpSwap      = driver.OpCmpSwap
	OpFetchAdd     = driver.OpFetchAdd
)

// Flags of a request, enum ibv_send_flags.
const (
	Fence     = driver.Fence
	Signaled  = driver.Signaled
	Solicited = driver.Solicited
)

// Completions, enum ibv_wc_opcode and enum ibv_wc_flags.
const (
	WCSend             = driver.WCSend
	WCWrite            = driver.WCWrite
	WCRead             = driver.WCRead
	WCCmpSwap          = driver.WCCmpSwap
	WCFetchAdd         = driver.WCFetchAdd
	WCRecv             = driver.WCRecv
	WCRecvWriteWithImm = driver.WCRecvWriteWithImm

	WCGRH     = driver.WCGRH
	WCWithImm = driver.WCWithImm
	WCWithInv = driver.WCWithInv
)

// How a request ended, enum ibv_wc_status.
const (
	Success        = driver.Success
	LocLenErr      = driver.LocLenErr
	LocQPOpErr     = driver.LocQPOpErr
	LocProtErr     = driver.LocProtErr
	WRFlushErr     = driver.WRFlushErr
	MWBindErr      = driver.MWBindErr
	BadRespErr     = driver.BadRespErr
	LocAccessErr   = driver.LocAccessErr
	RemInvReqErr   = driver.RemInvReqErr
	RemAccessErr   = driver.RemAccessErr
	RemOpErr       = driver.RemOpErr
	RetryExcErr    = driver.RetryExcErr
	RNRRetryExcErr = driver.RNRRetryExcErr
	FatalErr       = driver.FatalErr
	GeneralErr     = driver.GeneralErr
)

// Rights, enum ibv_access_flags. Remote rights to write need LocalWrite too.
const (
	LocalWrite      = driver.LocalWrite
	RemoteWrite     = driver.RemoteWrite
	RemoteRead      = driver.RemoteRead
	RemoteAtomic    = driver.RemoteAtomic
	RelaxedOrdering = driver.RelaxedOrdering
)

// Types and states of queue pairs.
const (
	RC = driver.RC
	UC = driver.UC
	UD = driver.UD

	Reset = driver.Reset
	Init  = driver.Init
	RTR   = driver.RTR
	RTS   = driver.RTS
	SQD   = driver.SQD
	SQE   = driver.SQE
	Err   = driver.Err
)

// Fields of a QPAttr, enum ibv_qp_attr_mask.
const (
	QPStateMask       = driver.QPStateMask
	QPCurState        = driver.QPCurState
	QPAccessFlags     = driver.QPAccessFlags
	QPPKeyIndex       = driver.QPPKeyIndex
	QPPort            = driver.QPPort
	QPQKey            = driver.QPQKey
	QPAV              = driver.QPAV
	QPPathMTU         = driver.QPPathMTU
	QPTimeout         = driver.QPTimeout
	QPRetryCnt        = driver.QPRetryCnt
	QPRNRRetry        = driver.QPRNRRetry
	QPRQPSN           = driver.QPRQPSN
	QPMaxQPRdAtomic   = driver.QPMaxQPRdAtomic
	QPMinRNRTimer     = driver.QPMinRNRTimer
	QPSQPSN           = driver.QPSQPSN
	QPMaxDestRdAtomic = driver.QPMaxDestRdAtomic
	QPDestQPN         = driver.QPDestQPN
)

// Path MTUs, link layers, port states and GID types.
const (
	MTU256  = driver.MTU256
	MTU512  = driver.MTU512
	MTU1024 = driver.MTU1024
	MTU2048 = driver.MTU2048
	MTU4096 = driver.MTU4096

	LinkInfiniBand = driver.LinkInfiniBand
	LinkEthernet   = driver.LinkEthernet

	PortDown   = driver.PortDown
	PortInit   = driver.PortInit
	PortArmed  = driver.PortArmed
	PortActive = driver.PortActive

	GIDTypeIB     = driver.GIDTypeIB
	GIDTypeRoCEv1 = driver.GIDTypeRoCEv1
	GIDTypeRoCEv2 = driver.GIDTypeRoCEv2
)

// Asynchronous events that programs act on, enum ibv_event_type.
const (
	EventCQErr       = driver.EventCQErr
	EventQPFatal     = driver.EventQPFatal
	EventQPReqErr    = driver.EventQPReqErr
	EventQPAccessErr = driver.EventQPAccessErr
	EventDeviceFatal = driver.EventDeviceFatal
	EventPortActive  = driver.EventPortActive
	EventPortErr     = driver.EventPortErr
	EventGIDChange   = driver.EventGIDChange
)

// Features to ask Context.Probe for.
const (
	FeatureDMABuf        = driver.FeatureDMABuf
	FeatureAtomics       = driver.FeatureAtomics
	FeatureFlowLabelPort = driver.FeatureFlowLabelPort
)

// Causes, for errors.Is.
var (
	ErrQueueFull    = driver.ErrQueueFull
	ErrBadState     = driver.ErrBadState
	ErrTooManySGE   = driver.ErrTooManySGE
	ErrInlineTooBig = driver.ErrInlineTooBig
	ErrTooLong      = driver.ErrTooLong
	ErrBusy         = driver.ErrBusy
	ErrClosed       = driver.ErrClosed
	ErrCQOverrun    = driver.ErrCQOverrun
	ErrDeviceGone   = driver.ErrDeviceGone
	ErrNotSupported = driver.ErrNotSupported
	ErrNoDevice     = driver.ErrNoDevice
)
