package mlx5prm

import "structs"

// Ctrl is struct mlx5_wqe_ctrl_seg, the head of every send entry. OpmodIdxOpcode
// is opmod<<24 | index<<8 | opcode, where index is the 16 low bits of the basic
// block that the entry begins at; QPNDS is qpn<<8 | ds.
type Ctrl struct {
	_                  structs.HostLayout
	OpmodIdxOpcode     BE32
	QPNDS              BE32
	Signature          uint8
	DCIStreamChannelID BE16
	FmCeSe             uint8
	Imm                BE32 // immediate data, the key to invalidate, or the UMR's mkey
}

// Index is the basic block that the entry begins at, modulo 2^16.
func (c *Ctrl) Index() uint16 { return uint16(c.OpmodIdxOpcode.Get() >> 8) }

// Opcode is Op….
func (c *Ctrl) Opcode() uint8 { return c.OpmodIdxOpcode[3] }

// Opmod is the modifier of the opcode.
func (c *Ctrl) Opmod() uint8 { return c.OpmodIdxOpcode[0] }

// QPN is the number of the queue pair.
func (c *Ctrl) QPN() uint32 { return c.QPNDS.Get() >> 8 }

// DS is the length of the entry in units of DSUnit.
func (c *Ctrl) DS() int { return int(c.QPNDS[3] & 0x3f) }

// SetHead stores the first half, with opmod 0. ds has 6 bits.
func (c *Ctrl) SetHead(index uint16, opcode uint8, qpn uint32, ds int) {
	halves(c)[0].set((uint64(index)<<8|uint64(opcode))<<32 | uint64(qpn<<8|uint32(ds)))
}

// SetFlags stores the second half: FmCeSe and Imm, without signature and stream.
func (c *Ctrl) SetFlags(flags uint8, imm uint32) { halves(c)[1].set(uint64(flags)<<32 | uint64(imm)) }

// RAddr is struct mlx5_wqe_raddr_seg.
type RAddr struct {
	_        structs.HostLayout
	RAddr    BE64
	RKey     BE32
	Reserved BE32
}

// Set stores all of it.
func (r *RAddr) Set(addr uint64, rkey uint32) {
	h := halves(r)
	h[0].set(addr)
	h[1].set(uint64(rkey) << 32)
}

// Atomic is struct mlx5_wqe_atomic_seg.
type Atomic struct {
	_       structs.HostLayout
	SwapAdd BE64
	Compare BE64
}

// Data is struct mlx5_wqe_data_seg, a gather or scatter entry. A ByteCount of 0
// stands for 2^31 bytes.
type Data struct {
	_         structs.HostLayout
	ByteCount BE32
	LKey      BE32
	Addr      BE64
}

// Set stores all of it.
func (d *Data) Set(addr uint64, length, lkey uint32) {
	h := halves(d)
	h[0].set(uint64(length)<<32 | uint64(lkey))
	h[1].set(addr)
}

// Inline is struct mlx5_wqe_inl_data_seg: the length with InlineSeg. The data
// follow, padded to DSUnit, and go on at the ring's start where it ends.
type Inline struct {
	_         structs.HostLayout
	ByteCount BE32
}

// AV is struct mlx5_wqe_av, the address of a datagram. GRHGIDFL has bit 30 on InfiniBand where
// the address is global, then the index of the source GID and the flow label.
type AV struct {
	_          structs.HostLayout
	QKey       BE32
	Reserved   BE32
	DQPDCT     BE32
	StatRateSL uint8
	FLMLID     uint8
	RLID       BE16
	Reserved0  [4]uint8
	RMAC       [6]uint8
	TClass     uint8
	HopLimit   uint8
	GRHGIDFL   BE32
	RGID       [16]uint8
}

// UMRCtrl is struct mlx5_wqe_umr_ctrl_seg.
type UMRCtrl struct {
	_                 structs.HostLayout
	Flags             uint8
	Rsvd0             [3]uint8
	KLMOctowords      BE16
	TranslationOffset BE16
	MkeyMask          BE64
	Rsvd1             [32]uint8
}

// MkeyContext is struct mlx5_wqe_mkey_context_seg.
type MkeyContext struct {
	_                       structs.HostLayout
	Free                    uint8
	Reserved1               uint8
	AccessFlags             uint8
	SF                      uint8
	QPNMkey                 BE32
	Reserved2               BE32
	FlagsPD                 BE32
	StartAddr               BE64
	Len                     BE64
	BSFOctwordSize          BE32
	Reserved3               [4]BE32
	TranslationsOctwordSize BE32
	Reserved4               [3]uint8
	LogPageSize             uint8
	Reserved                BE32
}

// KLM is struct mlx5_wqe_umr_klm_seg, an entry of the list behind a MkeyContext,
// which is padded to 64 bytes.
type KLM struct {
	_         structs.HostLayout
	ByteCount BE32
	Mkey      BE32
	Address   BE64
}

// SRQNext is struct mlx5_wqe_srq_next_seg, the head of an SRQ's entries, which a
// list of Data follows.
type SRQNext struct {
	_            structs.HostLayout
	Rsvd0        [2]uint8
	NextWQEIndex BE16
	Signature    uint8
	Rsvd1        [11]uint8
}
