package mlx5prm

// Opcodes of send work queue entries (MLX5_OPCODE_…).
const (
	OpNop       = 0x00
	OpSendInval = 0x01
	OpWrite     = 0x08
	OpWriteImm  = 0x09
	OpSend      = 0x0a
	OpSendImm   = 0x0b
	OpRead      = 0x10
	OpAtomicCS  = 0x11
	OpAtomicFA  = 0x12
	OpUMR       = 0x25
)

// Opcodes of completions (MLX5_CQE_…), the upper half of CQE.OpOwn.
const (
	CQEReq         = 0
	CQERespWrImm   = 1
	CQERespSend    = 2
	CQERespSendImm = 3
	CQERespSendInv = 4
	CQEResizeCQ    = 5
	CQEReqErr      = 13
	CQERespErr     = 14
	CQEInvalid     = 15
)

// Syndromes of completions in error (MLX5_CQE_SYNDROME_…).
const (
	SyndromeLocalLengthErr       = 0x01
	SyndromeLocalQPOpErr         = 0x02
	SyndromeLocalProtErr         = 0x04
	SyndromeWRFlushErr           = 0x05
	SyndromeMWBindErr            = 0x06
	SyndromeBadRespErr           = 0x10
	SyndromeLocalAccessErr       = 0x11
	SyndromeRemoteInvalReqErr    = 0x12
	SyndromeRemoteAccessErr      = 0x13
	SyndromeRemoteOpErr          = 0x14
	SyndromeTransportRetryExcErr = 0x15
	SyndromeRNRRetryExcErr       = 0x16
	SyndromeRemoteAbortedErr     = 0x22
)

// Flags in Ctrl.FmCeSe (MLX5_WQE_CTRL_…).
const (
	CtrlSolicited           = 1 << 1
	CtrlCQUpdate            = 2 << 2
	CtrlInitiatorSmallFence = 1 << 5
	CtrlFence               = 4 << 5
)

// Flags in CQE.OpOwn: the owner bit, which toggles with each turn of the queue, a
// solicited event, and inline scatter, where received data lie in the completion
// (MLX5_CQE_OWNER_MASK, MLX5_INLINE_SCATTER_…).
const (
	OwnerMask       = 1
	SolicitedEvent  = 1 << 1
	InlineScatter32 = 4
	InlineScatter64 = 8
)

// Flags and masks of UMR entries (MLX5_WQE_UMR_CTRL_…, MLX5_WQE_MKEY_CONTEXT_…).
const (
	UMRInline            = 1 << 7
	UMRCheckFree         = 1 << 5
	UMRTranslationOffset = 1 << 4
	UMRCheckQPN          = 1 << 3

	MkeyMaskLen         = 1 << 0
	MkeyMaskStartAddr   = 1 << 6
	MkeyMaskMkey        = 1 << 13
	MkeyMaskQPN         = 1 << 14
	MkeyMaskLocalWrite  = 1 << 18
	MkeyMaskRemoteRead  = 1 << 19
	MkeyMaskRemoteWrite = 1 << 20
	MkeyMaskAtomic      = 1 << 21
	MkeyMaskFree        = 1 << 29

	MkeyFree              = 1 << 6
	MkeyAccessLocalRead   = 1 << 2
	MkeyAccessLocalWrite  = 1 << 3
	MkeyAccessRemoteRead  = 1 << 4
	MkeyAccessRemoteWrite = 1 << 5
	MkeyAccessAtomic      = 1 << 6
)

const (
	// SendBB is the bytes of a basic block: entries of a send queue are whole ones,
	// and its index counts them (MLX5_SEND_WQE_BB).
	SendBB = 64
	// DSUnit is the bytes that the ds field of Ctrl counts in.
	DSUnit = 16
	// InvalidLKey ends the list of a receive that has fewer entries than its
	// queue has room for (MLX5_INVALID_LKEY).
	InvalidLKey = 0x100
	// InlineSeg in a byte count says that the data follow it (MLX5_INLINE_SEG).
	InlineSeg = 1 << 31
	// ExtendedUDAV in AV.DQPDCT says that the address has all its 48 bytes
	// (MLX5_EXTENDED_UD_AV).
	ExtendedUDAV = 1 << 31
	// AVGlobal in AV.GRHGIDFL asks for a global route header, on InfiniBand.
	AVGlobal = 1 << 30
)
