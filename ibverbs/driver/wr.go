package driver

// SendWR is one request of a send queue (struct ibv_send_wr). All of it may be
// reused or changed as soon as PostSend has returned. It is 128 bytes.
type SendWR struct {
	ID    uint64
	Op    Opcode
	Flags SendFlags
	// Imm is the immediate data as a number. It goes onto the wire most
	// significant byte first, as htonl in a C program does. For OpSendWithInv
	// and OpLocalInv it is the key to invalidate.
	Imm uint32
	// SGL is the registered memory to send from, or to read into; nil means no
	// data.
	SGL []SGE
	// Inline is data that the processor copies while posting, so it may be Go
	// memory. It excludes SGL and is at most QPCap.Inline bytes long. It
	// replaces the flag IBV_SEND_INLINE.
	Inline []byte
	// Remote is the peer's memory, for writes, reads and atomics.
	Remote Remote
	// CompareAdd is what OpFetchAdd adds and OpCmpSwap compares with; Swap is
	// what OpCmpSwap stores.
	CompareAdd, Swap uint64
	// UD is where a datagram goes, of a UD queue pair.
	UD Destination
	// Bind is the window to bind, for OpBindMW.
	Bind *BindMW
}

// RecvWR is one entry of a receive queue (struct ibv_recv_wr). It may be reused
// as soon as PostRecv has returned; the memory that SGL names may not, until
// its completion.
type RecvWR struct {
	ID  uint64
	SGL []SGE
}

// SGE is a piece of registered memory (struct ibv_sge). MR.SGE makes one.
type SGE struct {
	Addr   uint64 // IO virtual address, as registered
	Length uint32 // bytes
	LKey   uint32
}

// Remote is memory of the peer. MR.Remote makes it there.
type Remote struct {
	Addr uint64
	RKey uint32
}

// Destination is where a datagram goes.
type Destination struct {
	AH        AH
	QPN, QKey uint32
}

// BindMW is what OpBindMW binds: a window to Length bytes from Addr of an MR,
// with the new remote key RKey.
type BindMW struct {
	MW           MW
	MR           MR
	Addr, Length uint64
	Access       Access
	RKey         uint32
}

// Remote is what a peer needs to reach the window from its first byte on, once
// it is bound.
func (b *BindMW) Remote() Remote { return Remote{Addr: b.Addr, RKey: b.RKey} }

// WC is one completion (struct ibv_wc), 40 bytes without pointers. Unless
// Status is Success only ID, Status, VendorErr and QPN mean anything.
type WC struct {
	ID        uint64
	VendorErr uint32 // the device's own syndrome
	ByteLen   uint32 // bytes received, or read; not set for sends and writes
	Imm       uint32 // as in SendWR, valid with WCWithImm; the key with WCWithInv
	QPN       uint32 // the local QP
	SrcQP     uint32 // the remote QP, for datagrams
	Status    Status
	Op        WCOpcode
	Flags     WCFlags
	SL        uint8
	PKeyIndex uint16
	SLID      uint16
	PathBits  uint8
}

// Opcode is enum ibv_wr_opcode.
type Opcode uint8

// Operations of a send queue.
const (
	OpWrite        Opcode = 0 // IBV_WR_RDMA_WRITE
	OpWriteWithImm Opcode = 1
	OpSend         Opcode = 2
	OpSendWithImm  Opcode = 3
	OpRead         Opcode = 4 // IBV_WR_RDMA_READ
	OpCmpSwap      Opcode = 5 // IBV_WR_ATOMIC_CMP_AND_SWP
	OpFetchAdd     Opcode = 6 // IBV_WR_ATOMIC_FETCH_AND_ADD
	OpLocalInv     Opcode = 7
	OpBindMW       Opcode = 8
	OpSendWithInv  Opcode = 9
)

// SendFlags is enum ibv_send_flags, without IBV_SEND_INLINE: SendWR.Inline says
// that.
type SendFlags uint8

// Flags of a request.
const (
	Fence     SendFlags = 1 << 0 // start only when the reads and atomics before it are done
	Signaled  SendFlags = 1 << 1 // ask for a completion also when it succeeds
	Solicited SendFlags = 1 << 2 // wake a peer that armed for solicited completions only
)

// WCOpcode is enum ibv_wc_opcode.
type WCOpcode uint8

// What a completion is of. Receives have bit 7 set.
const (
	WCSend             WCOpcode = 0
	WCWrite            WCOpcode = 1
	WCRead             WCOpcode = 2
	WCCmpSwap          WCOpcode = 3
	WCFetchAdd         WCOpcode = 4
	WCBindMW           WCOpcode = 5
	WCLocalInv         WCOpcode = 6
	WCRecv             WCOpcode = 128
	WCRecvWriteWithImm WCOpcode = 129
)

// IsRecv reports whether it is of a receive queue.
func (o WCOpcode) IsRecv() bool { return o&WCRecv != 0 }

// WCFlags is enum ibv_wc_flags.
type WCFlags uint8

// Flags of a completion.
const (
	WCGRH     WCFlags = 1 << 0 // the first 40 bytes received are the global route header
	WCWithImm WCFlags = 1 << 1 // WC.Imm is valid
	WCWithInv WCFlags = 1 << 3 // WC.Imm is the key that the peer invalidated
)

// Access is enum ibv_access_flags.
type Access uint32

// Rights of a memory registration or of a QP. Remote rights to write need
// LocalWrite beside them.
const (
	LocalWrite      Access = 1 << 0
	RemoteWrite     Access = 1 << 1
	RemoteRead      Access = 1 << 2
	RemoteAtomic    Access = 1 << 3
	MWBind          Access = 1 << 4
	ZeroBased       Access = 1 << 5
	OnDemand        Access = 1 << 6
	HugeTLB         Access = 1 << 7
	RelaxedOrdering Access = 1 << 20
)
