package driver

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
)

// ProtocolVersion is that of the messages between ranks of this module. All ranks of a job have the same.
const ProtocolVersion = 1

const (
	// PeerInfoSize is the length of an encoded [PeerInfo].
	PeerInfoSize = 256
	// MaxSocket bounds PeerInfo.Socket: an address of a Unix socket.
	MaxSocket = 107
	// MaxNet bounds PeerInfo.Net.
	MaxNet = 15
)

// PeerInfo is what every rank knows of every rank: NCCL's ncclPeerInfo, without what lies in the sender's memory, and with what
// memory shared by descriptors needs. Package transport fills it; transports add their part in [Transport.Describe].
type PeerInfo struct {
	Version  uint32 // ProtocolVersion
	Rank     int
	HostHash uint64 // of NCCL_HOSTID, else of host name and boot id; equal means the same host
	PIDHash  uint64 // of the process and its pid namespace; equal, with HostHash, means the same process
	ShmDev   uint64 // device number of /dev/shm; 0 = there is none
	BootID   [16]byte
	NetNS    uint64 // inode of the network namespace, in which abstract sockets live
	UID      uint32
	// GPU of the rank; all zero without one. Several ranks may share one (NCCL refuses that).
	BusID      uint64 // PCI domain << 20 | bus << 12 | device << 4 | function
	GPUUUID    [16]byte
	ComputeCap uint32 // 90 for 9.0
	// Socket is the Unix address through which this rank passes descriptors, "" = none; a leading "@" stands for the NUL of an
	// abstract one.
	Socket string
	// Net names the network transport's wire format, "" = none. Ranks with different ones cannot talk.
	Net string
}

// SameHost tells whether the two are on one host, as NCCL_HOSTID or the machine says.
func (p *PeerInfo) SameHost(q *PeerInfo) bool { return p.HostHash == q.HostHash }

// SameProcess tells whether the two are ranks of one process.
func (p *PeerInfo) SameProcess(q *PeerInfo) bool { return p.SameHost(q) && p.PIDHash == q.PIDHash }

// HasGPU tells whether the rank has a GPU.
func (p *PeerInfo) HasGPU() bool { return p.ComputeCap != 0 }

// ErrPeerInfo is for a peer's info that cannot be right.
var ErrPeerInfo = errors.New("implausible peer info")

// Append encodes p: [PeerInfoSize] bytes, little-endian, the rest zero.
//
//	off  size  field            off  size  field
//	0    4     version          64   8     network namespace
//	4    4     rank             72   8     bus id
//	8    8     host hash        80   4     uid
//	16   8     pid hash         84   4     compute capability
//	24   8     /dev/shm device  88   16    net
//	32   16    boot id          104  108   socket
//	48   16    GPU UUID         212  44    0
func (p *PeerInfo) Append(b []byte) ([]byte, error) {
	if err := p.check(); err != nil {
		return b, err
	}
	le := binary.LittleEndian
	end := len(b) + PeerInfoSize
	b = le.AppendUint32(b, p.Version)
	b = le.AppendUint32(b, uint32(p.Rank))
	b = le.AppendUint64(b, p.HostHash)
	b = le.AppendUint64(b, p.PIDHash)
	b = le.AppendUint64(b, p.ShmDev)
	b = append(b, p.BootID[:]...)
	b = append(b, p.GPUUUID[:]...)
	b = le.AppendUint64(b, p.NetNS)
	b = le.AppendUint64(b, p.BusID)
	b = le.AppendUint32(b, p.UID)
	b = le.AppendUint32(b, p.ComputeCap)
	b = append(b, p.Net...)
	b = append(b, make([]byte, MaxNet+1-len(p.Net))...)
	b = append(b, p.Socket...)
	return append(b, make([]byte, end-len(b))...), nil
}

// DecodePeerInfo checks and decodes what a peer sent. Another version is an error before anything else is looked at.
func DecodePeerInfo(b []byte) (PeerInfo, error) {
	if len(b) != PeerInfoSize {
		return PeerInfo{}, fmt.Errorf("%w: %d bytes, want %d", ErrPeerInfo, len(b), PeerInfoSize)
	}
	le := binary.LittleEndian
	p := PeerInfo{Version: le.Uint32(b), Rank: int(le.Uint32(b[4:])), HostHash: le.Uint64(b[8:]), PIDHash: le.Uint64(b[16:]),
		ShmDev: le.Uint64(b[24:]), BootID: [16]byte(b[32:]), GPUUUID: [16]byte(b[48:]), NetNS: le.Uint64(b[64:]), BusID: le.Uint64(b[72:]),
		UID: le.Uint32(b[80:]), ComputeCap: le.Uint32(b[84:])}
	if p.Version != ProtocolVersion {
		return PeerInfo{}, fmt.Errorf("%w: version %d, want %d: all ranks need the same release", ErrPeerInfo, p.Version, ProtocolVersion)
	}
	p.Net = text(b[88:104])
	p.Socket = text(b[104:212])
	return p, p.check()
}

// text is what stands before the zeros at the end of b.
func text(b []byte) string { return string(bytes.TrimRight(b, "\x00")) }

func (p *PeerInfo) check() error {
	bad := func(field string, value any, want string) error {
		return fmt.Errorf("%w: %s is %v, want %s", ErrPeerInfo, field, value, want)
	}
	switch {
	case p.Rank < 0 || p.Rank > 1<<31-1:
		return bad("rank", p.Rank, "0 to 2147483647")
	case len(p.Net) > MaxNet || !printable(p.Net):
		return bad("net", fmt.Sprintf("%.32q", p.Net), "at most 15 printable characters")
	case len(p.Socket) > MaxSocket || strings.ContainsRune(p.Socket, 0):
		return bad("socket", fmt.Sprintf("%.128q", p.Socket), "the address of a Unix socket")
	}
	return nil
}

func printable(s string) bool {
	for i := range len(s) {
		if s[i] <= ' ' || s[i] > '~' {
			return false
		}
	}
	return true
}
