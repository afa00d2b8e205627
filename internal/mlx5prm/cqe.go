package mlx5prm

import "structs"

// CQE is struct mlx5_cqe64, a completion. In a queue of 128-byte entries it is the
// second half.
type CQE struct {
	_            structs.HostLayout
	Rsvd0        [2]uint8
	WQEID        BE16
	Rsvd4        [13]uint8
	MLPath       uint8
	Rsvd20       [4]uint8
	SLID         BE16
	FlagsRQPN    BE32 // a global route header's bits, SL and the source QP's number
	HDSIPExt     uint8
	L4HdrTypeEtc uint8
	VLANInfo     BE16
	SRQNUIdx     BE32
	ImmInvalPKey BE32
	App          uint8
	AppOp        uint8
	AppInfo      BE16
	ByteCnt      BE32
	Timestamp    BE64
	SOpDropQPN   BE32 // opcode of the request<<24 | QP number
	WQECounter   BE16 // index of the entry that completed
	Signature    uint8
	OpOwn        uint8 // opcode<<4 | inline scatter | SolicitedEvent | owner
}

// Opcode is CQE….
func (c *CQE) Opcode() uint8 { return c.OpOwn >> 4 }

// Owner is the owner bit.
func (c *CQE) Owner() uint8 { return c.OpOwn & OwnerMask }

// QPN is the number of the local queue pair.
func (c *CQE) QPN() uint32 { return c.SOpDropQPN.Get() & 0xffffff }

// SendOpcode is Op… of the request, of a completion with CQEReq.
func (c *CQE) SendOpcode() uint8 { return c.SOpDropQPN[0] }

// GRH is the bits that say whether a global route header came: 0 is none.
func (c *CQE) GRH() uint8 { return uint8(c.FlagsRQPN.Get() >> 28 & 3) }

// SL is the service level.
func (c *CQE) SL() uint8 { return uint8(c.FlagsRQPN.Get() >> 24 & 0xf) }

// SrcQP is the number of the queue pair that sent a datagram.
func (c *CQE) SrcQP() uint32 { return c.FlagsRQPN.Get() & 0xffffff }

// ErrCQE is struct mlx5_err_cqe, what CQE is with CQEReqErr or CQERespErr.
type ErrCQE struct {
	_             structs.HostLayout
	Rsvd0         [32]uint8
	SRQN          BE32
	Rsvd1         [18]uint8
	VendorErrSynd uint8
	Syndrome      uint8
	SWQEOpcodeQPN BE32
	WQECounter    BE16
	Signature     uint8
	OpOwn         uint8
}

// Initial is OpOwn of an entry that no completion was written to. libmlx5 fills
// each new queue with it.
const Initial = CQEInvalid << 4

// Valid says whether an entry with this OpOwn belongs to the program, which has
// consumed ci entries of a queue of n, a power of two.
func Valid(opOwn uint8, ci, n uint32) bool {
	return opOwn>>4 != CQEInvalid && (opOwn&OwnerMask != 0) == (ci&n != 0)
}
